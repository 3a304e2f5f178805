// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* What results mean in words, and which version of the library it is. */
#include <string.h>

#include "internal.h"
#include "own_words.h"

const char *memwait_strerror(int result)
{
	unsigned int number = result < 0 ? -(unsigned int)result : (unsigned int)result;
	const char *words = memwait_own_words(number);

	/* strerror() of a known number returns a constant string. */
	return words ? words : strerror((int)number);
}

unsigned int memwait_version(void)
{
	return MEMWAIT_VERSION;
}
