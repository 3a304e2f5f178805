// SPDX-License-Identifier: GPL-2.0-only
// The order of search results, for Sphinx. The numbers are Sphinx's defaults. score() changes the
// score of a result by the kind of its page: pages that help users come first, pages for developers
// later, and the history of the project last. Among functions, shorter names come first. Results
// with equal scores are sorted by their titles.
"use strict";

var Scorer = {
	kinds: [
		[/^Documentation\/(functions|glossary|troubleshooting|tutorial)$/, 2],
		[/^Documentation\/(howto|install)$/, 1],
		[/^userlib\/bindings\/(cxx|python|node|rust)\/README$/, 1],
		[/\/examples\/|^userlib\/(memwait|memwait\/pthread)$/, -1],
		[/^Documentation\/(bench-figures|design|memwait|requirements|testing|userlib)$/, -2],
		[/^(CHANGELOG|CONTRIBUTING|SECURITY)$/, -4],
	],
	score: ([page, title, , , score, , kind]) =>
		score + (Scorer.kinds.find(([pattern]) => pattern.test(page)) ?? [null, 0])[1] -
			(kind === "object" ? title.length / 1000 : 0),
	objNameMatch: 11,
	objPartialMatch: 6,
	objPrio: { 0: 15, 1: 5, 2: -5 },
	objPrioDefault: 0,
	title: 15,
	partialTitle: 7,
	term: 5,
	partialTerm: 2,
};
