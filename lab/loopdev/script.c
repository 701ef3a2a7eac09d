// A library that is loaded before libibverbs and librdmacm, and before the loop device. It makes
// calls fail and changes the order of connection events, as a script says. GODAT_LOOP_SCRIPT names
// the script's file, which may change at any time; then all counts begin again. A line is:
//
//	fail CALL N ERRNO    the Nth call of CALL fails, with N = 0 each call
//	skip CALL            each call of CALL returns 0, and does nothing
//	limit ATTRIBUTE N    ibv_query_device reports N in this field of struct ibv_device_attr
//	hold EVENT UNTIL     EVENT is held back until UNTIL has been taken, on the same channel
//	after EVENT MORE     after EVENT, an event MORE of the same id comes, once
//	trace                each call appends its name to the file with the additional suffix .trace
//
// ERRNO and the events are numbers. The wrappers are made from the list of the functions that
// cverbs calls. They work with every device.

#define _GNU_SOURCE
#include "../../cverbs/abi.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RULES = 32 };

struct rule {
	char kind, call[64]; // kind: 'f', 's', 'l', 'h', 'a'
	int event, other, error, count, n;
};

struct pending { // an event that the channel has not delivered
	struct rdma_event_channel *ch;
	struct rdma_cm_event *event;
	int until; // held back until this event; -1: deliver it now
	struct pending *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *path;
static char text[4096];
static struct rule rules[MAX_RULES];
static int rule_count, tracing;
static struct pending *pendings;
static struct rdma_cm_event *made[64]; // events of this file that are not acknowledged yet

__attribute__((constructor)) static void start(void) { path = getenv("GODAT_LOOP_SCRIPT"); }

static void parse(void)
{
	char copy[sizeof(text)], *line, *rest = strcpy(copy, text);

	rule_count = tracing = 0;
	while ((line = strsep(&rest, "\n"))) {
		struct rule r = { .kind = *line };

		if (!strcmp(line, "trace"))
			tracing = 1;
		else if (rule_count < MAX_RULES && (sscanf(line, "fail %63s %d %d", r.call, &r.n, &r.error) == 3 ||
			sscanf(line, "skip %63s", r.call) == 1 || sscanf(line, "limit %63s %d", r.call, &r.n) == 2 ||
			sscanf(line, "hold %d %d", &r.event, &r.other) == 2 || sscanf(line, "after %d %d", &r.event, &r.other) == 2))
			rules[rule_count++] = r;
		else if (*line)
			fprintf(stderr, "%s: not understood: %s\n", path, line);
	}
}

static void load(void) // the caller holds the lock
{
	char now[sizeof(text)];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, now, sizeof(now) - 1);
	struct pending *p;

	if (fd >= 0)
		close(fd);
	now[n > 0 ? n : 0] = 0;
	if (!strcmp(now, text))
		return;
	strcpy(text, now);
	parse();
	for (p = pendings; p; p = p->next)
		p->until = -1;
}

static void trace(const char *name)
{
	char file[512];
	FILE *f;

	snprintf(file, sizeof(file), "%s.trace", path);
	if ((f = fopen(file, "ae"))) {
		fprintf(f, "%s\n", name);
		fclose(f);
	}
}

enum { SKIP = -1 };

// Stores the function with this name that follows this library, and returns the errno with which
// the script lets this call fail, SKIP, or 0.
static int scripted(const char *name, void **next)
{
	int i, e = 0, was = errno;

	if (!*next)
		*next = dlsym(RTLD_NEXT, name);
	if (!path)
		return 0;
	pthread_mutex_lock(&lock);
	load();
	if (tracing)
		trace(name);
	for (i = 0; i < rule_count; i++) {
		struct rule *r = &rules[i];

		if (r->kind == 'f' && !strcmp(r->call, name) && (++r->count == r->n || !r->n))
			e = r->error;
		if (r->kind == 's' && !strcmp(r->call, name))
			e = SKIP;
	}
	pthread_mutex_unlock(&lock);
	errno = was;
	return e;
}

#define rdma_get_cm_event next_get_cm_event // the names of the wrappers below
#define rdma_ack_cm_event next_ack_cm_event
#define rdma_destroy_id next_destroy_id
#define ibv_query_device next_query_device
#define OTHER(result, name, version, parameters, arguments) \
	result name parameters \
	{ \
		static result(*next) parameters; \
		int e = scripted(#name, (void **)&next); \
		if (e == SKIP) \
			return (result)0; \
		return e ? (errno = e, (result)-1) : next arguments; \
	}
#define POINTER(result, name, version, parameters, arguments) \
	result name parameters \
	{ \
		static result(*next) parameters; \
		int e = scripted(#name, (void **)&next); \
		return e ? (errno = e, NULL) : next arguments; \
	}
#include "../../cverbs/libcalls.h"
#undef rdma_get_cm_event
#undef rdma_ack_cm_event
#undef rdma_destroy_id
#undef ibv_query_device

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *a)
{
	int i, rc = next_query_device(ctx, a);

#define LIMIT(field) if (rules[i].kind == 'l' && !strcmp(rules[i].call, #field)) a->field = rules[i].n;
	pthread_mutex_lock(&lock);
	for (i = 0; i < rule_count; i++) {
		LIMIT(max_qp_wr)
		LIMIT(max_cqe)
		LIMIT(max_qp_rd_atom)
		LIMIT(max_qp_init_rd_atom)
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static void add(struct rdma_event_channel *ch, struct rdma_cm_event *e, int until)
{
	struct pending *p = malloc(sizeof(*p)), **at = &pendings;

	*p = (struct pending){ ch, e, until, NULL };
	while (*at)
		at = &(*at)->next;
	*at = p;
}

// Applies the rules to an event that the channel delivers. Returns 1 if the event is held back.
static int apply(struct rdma_event_channel *ch, struct rdma_cm_event *e)
{
	struct pending *p;
	int i, k;

	for (i = 0; i < rule_count; i++) {
		struct rule *r = &rules[i];

		if (r->kind == 'h' && r->event == (int)e->event && !r->count++)
			return add(ch, e, r->other), 1;
		if (r->kind == 'a' && r->event == (int)e->event && !r->count++) {
			for (k = 0; made[k]; k++)
				;
			made[k] = calloc(1, sizeof(*e));
			*made[k] = (struct rdma_cm_event){ .id = e->id, .event = (enum rdma_cm_event_type)r->other };
			add(ch, made[k], -1);
		}
	}
	for (p = pendings; p; p = p->next)
		if (p->ch == ch && p->until == (int)e->event)
			p->until = -1;
	return 0;
}

// Removes the first event of a channel that may be delivered, or the first event of an id.
static struct rdma_cm_event *take(struct rdma_event_channel *ch, struct rdma_cm_id *id)
{
	struct pending **at = &pendings, *p;
	struct rdma_cm_event *e = NULL;

	while ((p = *at) && !(id ? p->event->id == id : p->ch == ch && p->until < 0))
		at = &p->next;
	if (p) {
		e = p->event;
		*at = p->next;
		free(p);
	}
	return e;
}

int rdma_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **out)
{
	int held = 0, rc;

	do {
		pthread_mutex_lock(&lock);
		*out = take(ch, NULL);
		pthread_mutex_unlock(&lock);
		if (*out)
			return 0;
		if ((rc = next_get_cm_event(ch, out)))
			return rc;
		pthread_mutex_lock(&lock);
		held = apply(ch, *out);
		pthread_mutex_unlock(&lock);
	} while (held);
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *e)
{
	int i, mine = 0;

	pthread_mutex_lock(&lock);
	for (i = 0; i < 64; i++) {
		if (made[i] == e && e) {
			mine = 1;
			made[i] = NULL;
			free(e);
		}
	}
	pthread_mutex_unlock(&lock);
	return mine ? 0 : next_ack_cm_event(e);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct rdma_cm_event *e;

	for (;;) {
		pthread_mutex_lock(&lock);
		e = take(NULL, id);
		pthread_mutex_unlock(&lock);
		if (!e)
			return next_destroy_id(id);
		rdma_ack_cm_event(e);
	}
}
