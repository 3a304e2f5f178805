// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the scenarios, with the memory orders of the sources or with one of them weakened.
 *
 * relacy scenarios			prints their names
 * relacy sites				prints every order that could be weaker, and how
 * relacy run EXECUTIONS [SCENARIO]...	exit code 1 if one fails
 * relacy weaken EXECUTIONS SITE		exit code 1 if none fails, 2 if no such site
 * relacy show EXECUTIONS SCENARIO [SITE]	prints a failing execution
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenarios.h"

/* See SCENARIO(). */
extern const struct sim_scenario __start_sim_scenarios[];
extern const struct sim_scenario __stop_sim_scenarios[];

/*
 * The memory orders in the sources. A function in a header has its orders once for each file that
 * includes the header.
 */
extern struct sim_site __start_sim_sites[];
extern struct sim_site __stop_sim_sites[];

static const char *const order_names[] = {
	"relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst"
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Returns the first or second order of the site, weakened by one step, or -1. */
static int weaker(const struct sim_site *site, unsigned int which)
{
	switch (site->order) {
	case SIM_ACQUIRE:
	case SIM_RELEASE:
		return which ? -1 : SIM_RELAXED;
	case SIM_ACQ_REL:
		if (which > 1)
			return -1;
		return which ? SIM_RELEASE : SIM_ACQUIRE;
	case SIM_SEQ_CST:
		if (which)
			return -1;
		if (site->kind == SIM_KIND_CHANGE)
			return SIM_ACQ_REL;
		return site->kind == SIM_KIND_STORE ? SIM_RELEASE : SIM_ACQUIRE;
	}
	return -1;
}

/* Scenarios have their own memory orders, which do not belong to the library. */
static bool is_of_library(const struct sim_site *site)
{
	return !strstr(site->file, "scenarios");
}

static bool is_same_place(const struct sim_site *site, const struct sim_site *other)
{
	return !strcmp(site->file, other->file) && !strcmp(site->function, other->function) &&
	       !strcmp(site->access, other->access) && site->order == other->order;
}

/* Returns how many different sites of the same kind precede this site in its function. */
static unsigned int rank_of(const struct sim_site *site)
{
	const struct sim_site *other, *before;
	unsigned int rank = 0;

	for (other = __start_sim_sites; other < __stop_sim_sites; other++) {
		if (!is_same_place(site, other) || other->line >= site->line)
			continue;
		for (before = __start_sim_sites; before < other; before++) {
			if (is_same_place(before, other) && before->line == other->line)
				break;
		}
		rank += before == other;
	}
	return rank;
}

/*
 * The name consists of the file, the function, the access, and the two orders. It does not change
 * when lines move.
 */
static void name_site(char *name, size_t size, const struct sim_site *site, unsigned int which)
{
	unsigned int rank = rank_of(site);
	char number[16] = "";

	if (rank)
		snprintf(number, sizeof(number), " #%u", rank + 1);
	snprintf(name, size, "%s %s %s%s %s -> %s", base_name(site->file), site->function,
		 site->access, number, order_names[site->order],
		 order_names[weaker(site, which)]);
}

static int list_sites(void)
{
	struct sim_site *site, *before;
	unsigned int which;
	char name[256];

	for (site = __start_sim_sites; site < __stop_sim_sites; site++) {
		if (!is_of_library(site))
			continue;
		for (before = __start_sim_sites; before < site; before++) {
			if (is_same_place(before, site) && before->line == site->line)
				break;
		}
		for (which = 0; before == site && weaker(site, which) >= 0; which++) {
			name_site(name, sizeof(name), site, which);
			puts(name);
		}
	}
	return 0;
}

static bool weaken(const char *wanted)
{
	struct sim_site *site;
	unsigned int which;
	bool found = false;
	char name[256];

	for (site = __start_sim_sites; site < __stop_sim_sites; site++) {
		for (which = 0; weaker(site, which) >= 0; which++) {
			name_site(name, sizeof(name), site, which);
			if (!strcmp(name, wanted)) {
				site->weakened = weaker(site, which);
				found = true;
			}
		}
	}
	if (!found)
		fprintf(stderr, "no such site: %s\n", wanted);
	return found;
}

/* Number of executions of each scenario that determine whether it uses an order. */
#define FIRST_EXECUTIONS	1000

/* Whether each scenario uses the order. */
static bool uses_it[200];

static const struct sim_scenario *current;

static void set_up(void)
{
	memset(done, 0, sizeof(done));
	device_set_up(current->threads);
	current->set_up();
}

static void thread(unsigned int number)
{
	device_thread(current->thread, number);
}

static void finish(void)
{
	current->finish();
}

/* Returns whether all executions succeeded. */
static bool run(const struct sim_scenario *scenario, uint64_t executions, bool show)
{
	const struct sim_scenario whole = {
		scenario->name, scenario->threads, set_up, thread, finish,
	};
	char failure[200];
	uint64_t failed;

	current = scenario;
	failed = sim_run(&whole, executions, show, failure, sizeof(failure));
	if (failed)
		printf("%s: execution %llu: %s\n", scenario->name, (unsigned long long)failed,
		       failure);
	return !failed;
}

/* Returns whether a weakened order was used since forget_reached(). */
static bool is_reached(void)
{
	const struct sim_site *site;

	for (site = __start_sim_sites; site < __stop_sim_sites; site++) {
		if (site->weakened >= 0 && site->reached)
			return true;
	}
	return false;
}

static void forget_reached(void)
{
	struct sim_site *site;

	for (site = __start_sim_sites; site < __stop_sim_sites; site++)
		site->reached = 0;
}

/*
 * Runs the scenarios until one of them fails: first all scenarios FIRST_EXECUTIONS times, then the
 * scenarios that use the weakened order @executions times. Returns 0 if a scenario failed.
 */
static int find(uint64_t executions)
{
	const struct sim_scenario *scenario;
	unsigned int used = 0;

	for (scenario = __start_sim_scenarios; scenario < __stop_sim_scenarios; scenario++) {
		forget_reached();
		if (!run(scenario, FIRST_EXECUTIONS, false))
			return 0;
		uses_it[scenario - __start_sim_scenarios] = is_reached();
		used += is_reached();
	}
	for (scenario = __start_sim_scenarios; scenario < __stop_sim_scenarios; scenario++) {
		if (uses_it[scenario - __start_sim_scenarios] && !run(scenario, executions, false))
			return 0;
	}
	printf("none of the %u scenarios that use it fails\n", used);
	return 1;
}

static int show(uint64_t executions, const char *name)
{
	const struct sim_scenario *scenario;

	for (scenario = __start_sim_scenarios; scenario < __stop_sim_scenarios; scenario++) {
		if (!strcmp(name, scenario->name))
			return !run(scenario, executions, true);
	}
	return 2;
}

static int run_all(uint64_t executions, char **names)
{
	const struct sim_scenario *scenario;
	char **name;
	int bad = 0;

	for (scenario = __start_sim_scenarios; scenario < __stop_sim_scenarios; scenario++) {
		for (name = names; *name; name++) {
			if (!strcmp(*name, scenario->name))
				break;
		}
		if ((!*names || *name) && !run(scenario, executions, false))
			bad = 1;
	}
	return bad;
}

static int list_scenarios(void)
{
	const struct sim_scenario *scenario;

	for (scenario = __start_sim_scenarios; scenario < __stop_sim_scenarios; scenario++)
		puts(scenario->name);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	uint64_t executions = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

	if (!strcmp(what, "sites"))
		return list_sites();
	if (!strcmp(what, "scenarios"))
		return list_scenarios();
	if (!executions)
		return 2;
	if (!strcmp(what, "run"))
		return run_all(executions, argv + 3);
	if (!strcmp(what, "weaken") && argc > 3)
		return weaken(argv[3]) ? find(executions) : 2;
	if (!strcmp(what, "show") && argc > 3)
		return argc > 4 && !weaken(argv[4]) ? 2 : show(executions, argv[3]);
	return 2;
}
