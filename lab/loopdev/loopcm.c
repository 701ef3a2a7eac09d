// The connection manager of the loop device, for hosts that have no connection manager. It has the
// calls, events and private data padding of librdmacm. Each connection is a Unix socket. A listener
// is an abstract Unix socket whose name contains the port, so that processes of one host find each
// other. The descriptor of an event channel is an epoll set of the channel's sockets, which
// rdma_get_cm_event reads.

#include "loopdev.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum message { REQ = 1, REP, RTU, REJ, DREQ, DREP };

struct packet {
	uint32_t type, qpn, private_len;
	union ibv_gid gid;
	struct sockaddr_in from, to;
	struct ibv_ece ece;
	uint8_t in, out, flow, retry, rnr, srq;
	uint8_t data[256];
};

enum id_state { IDLE, BOUND, LISTENING, RESOLVED, ROUTED, REQ_SENT, REP_READ, UNREAD, REQ_READ, REP_SENT, UP,
	DREQ_SENT, DREQ_READ, OVER };

struct id {
	struct rdma_cm_id base;
	enum id_state state;
	int sock; // -1: none
	int unacked; // events of the id that were taken and are not acknowledged yet
	int seen;    // the program has the id, and must destroy it
	struct channel *ch;
	struct id *listener, *next; // the listener of a request; the next id of the channel
	struct packet peer;         // the request or the reply of the peer
	struct ibv_ece ece;
};

struct event {
	struct rdma_cm_event base;
	struct event *next;
	uint8_t data[256];
};

struct channel {
	struct rdma_event_channel base;
	int kick; // an eventfd that counts the queued events
	struct id *ids;
	struct event *first, **last;
};

static pthread_mutex_t cm_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cm_acked = PTHREAD_COND_INITIALIZER;
static struct ibv_context *shared; // the device context that ids are bound to
static uint16_t next_port = 40000;

// Bytes of private data in each kind of message. Shorter data is padded with zeroes.
static const uint32_t room[] = { [REQ] = 56, [REP] = 196, [REJ] = 148, [RTU] = 0, [DREQ] = 0, [DREP] = 0 };

static int host_has_cm(void) { return access("/dev/infiniband/rdma_cm", F_OK) == 0; }

static struct sockaddr_in *in_of(struct sockaddr *sa) { return (struct sockaddr_in *)sa; }
static struct sockaddr_in *local_of(struct id *i) { return in_of(&i->base.route.addr.src_addr); }
static struct sockaddr_in *remote_of(struct id *i) { return in_of(&i->base.route.addr.dst_addr); }

static int fail(int e)
{
	errno = e;
	return -1;
}

static socklen_t name_of(struct sockaddr_un *un, uint16_t port)
{
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "rdma-loop-%u", port));
}

static struct event *new_event(struct id *i, enum rdma_cm_event_type type, int status)
{
	struct event *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	e->base.id = &i->base;
	e->base.event = type;
	e->base.status = status;
	return e;
}

static void queue(struct channel *ch, struct event *e)
{
	static const uint64_t one = 1;

	*ch->last = e;
	ch->last = &e->next;
	if (write(ch->kick, &one, sizeof(one)) < 0)
		abort();
}

static void queue_kind(struct id *i, enum rdma_cm_event_type type, int status)
{
	queue(i->ch, new_event(i, type, status));
}

static void fill(struct event *e, const struct packet *p)
{
	struct rdma_conn_param *c = &e->base.param.conn;

	memcpy(e->data, p->data, sizeof(e->data));
	c->private_data = e->data;
	c->private_data_len = (uint8_t)room[p->type];
	c->responder_resources = p->out; // this end serves what the peer starts
	c->initiator_depth = p->in;
	c->flow_control = p->flow;
	c->retry_count = p->retry;
	c->rnr_retry_count = p->rnr;
	c->srq = p->srq;
	c->qp_num = p->qpn;
}

static int watch(struct id *i, int op)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = i };

	return epoll_ctl(i->ch->base.fd, op, i->sock, &ev);
}

static void hang_up(struct id *i)
{
	int was = errno; // restored at the end, because the caller returns it

	if (i->sock < 0)
		return;
	watch(i, EPOLL_CTL_DEL); // close does not remove it while a forked child has a copy
	shutdown(i->sock, SHUT_RDWR);
	close(i->sock);
	i->sock = -1;
	errno = was;
}

static int say(struct id *i, enum message type, const struct rdma_conn_param *c)
{
	struct packet p = { .type = type };

	if (c) {
		if (c->private_data_len > room[type])
			return fail(EINVAL);
		p.qpn = i->base.qp ? i->base.qp->qp_num : c->qp_num;
		p.in = c->responder_resources;
		p.out = c->initiator_depth;
		p.flow = c->flow_control;
		p.retry = c->retry_count;
		p.rnr = c->rnr_retry_count;
		p.srq = c->srq;
		p.private_len = c->private_data_len;
		if (c->private_data_len)
			memcpy(p.data, c->private_data, c->private_data_len);
	}
	p.ece = i->ece;
	p.ece.vendor_id &= 0xffffff; // as on InfiniBand, whose messages have 24 bits for it
	p.from = *local_of(i);
	p.to = *remote_of(i);
	p.gid = loop_gid();
	if (send(i->sock, &p, sizeof(p), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(p))
		return fail(EINVAL); // the peer has hung up
	return 0;
}

static struct id *new_id(struct channel *ch, void *context, enum rdma_port_space ps)
{
	struct id *i = calloc(1, sizeof(*i));

	if (!i)
		return NULL;
	i->base.channel = &ch->base;
	i->base.context = context;
	i->base.ps = ps;
	i->base.qp_type = IBV_QPT_RC;
	i->sock = -1;
	i->ch = ch;
	i->next = ch->ids;
	ch->ids = i;
	return i;
}

static int bind_device(struct id *i)
{
	if (!shared) {
		int n;
		struct ibv_device **list = ibv_get_device_list(&n);

		if (list) {
			shared = ibv_open_device(list[n - 1]);
			ibv_free_device_list(list);
		}
	}
	i->base.verbs = shared;
	i->base.port_num = 1;
	return shared ? 0 : -1;
}

// ---- what has arrived

static struct event *hung_up(struct id *i)
{
	enum id_state was = i->state;

	hang_up(i);
	i->state = OVER;
	switch (was) {
	case REQ_SENT:
		return new_event(i, RDMA_CM_EVENT_REJECTED, 28);
	case REQ_READ:
	case REP_SENT:
		return new_event(i, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
	case REP_READ:
	case UP:
	case DREQ_SENT:
		return new_event(i, RDMA_CM_EVENT_DISCONNECTED, 0);
	default:
		return NULL;
	}
}

static struct event *accept_one(struct id *l)
{
	int sock = accept4(l->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct id *i;

	if (sock < 0)
		return NULL;
	i = new_id(l->ch, NULL, l->base.ps);
	if (!i) {
		close(sock);
		return NULL;
	}
	i->sock = sock;
	i->state = UNREAD;
	i->listener = l;
	watch(i, EPOLL_CTL_ADD);
	return NULL; // the request comes later, on the new socket
}

static void forget(struct id *i)
{
	struct id **at;
	struct event **e;

	hang_up(i);
	for (at = &i->ch->ids; *at && *at != i; at = &(*at)->next)
		;
	if (*at)
		*at = i->next;
	for (e = &i->ch->first; *e;) {
		struct event *x = *e;

		if (x->base.id == &i->base || x->base.listen_id == &i->base) {
			*e = x->next;
			free(x);
		} else {
			e = &x->next;
		}
	}
	i->ch->last = e;
	free(i);
}

static struct event *arrived(struct id *i)
{
	struct packet p;
	struct event *e = NULL;
	ssize_t n;

	if (i->state == LISTENING)
		return accept_one(i);
	n = recv(i->sock, &p, sizeof(p), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return NULL;
	if (n != sizeof(p) || p.type < REQ || p.type > DREP) {
		if (i->state == UNREAD) { // the program has not seen this id
			forget(i);
			return NULL;
		}
		return hung_up(i);
	}
	p.data[sizeof(p.data) - 1] = 0;
	if (p.type == REQ && i->state == UNREAD) {
		*local_of(i) = p.to;
		*remote_of(i) = p.from;
		i->peer = p;
		i->state = REQ_READ;
		bind_device(i);
		e = new_event(i, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		e->base.listen_id = &i->listener->base;
		fill(e, &p);
	} else if (p.type == REP && i->state == REQ_SENT) {
		i->peer = p;
		i->state = REP_READ;
		e = new_event(i, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
		fill(e, &p);
	} else if (p.type == RTU && i->state == REP_SENT) {
		i->state = UP;
		e = new_event(i, RDMA_CM_EVENT_ESTABLISHED, 0);
	} else if (p.type == REJ && (i->state == REQ_SENT || i->state == REP_SENT)) {
		e = new_event(i, i->state == REQ_SENT ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_CONNECT_ERROR, 28);
		fill(e, &p);
		i->state = OVER;
		hang_up(i);
	} else if (p.type == DREQ) {
		i->state = i->state == DREQ_SENT ? OVER : DREQ_READ;
		e = new_event(i, RDMA_CM_EVENT_DISCONNECTED, 0);
	} else if (p.type == DREP && i->state == DREQ_SENT) {
		i->state = OVER;
		e = new_event(i, RDMA_CM_EVENT_DISCONNECTED, 0);
	}
	return e;
}

// ---- channels and ids

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct channel *ch;
	struct epoll_event ev = { .events = EPOLLIN };

	if (host_has_cm())
		return HOST(rdma_create_event_channel)();
	if (!(ch = calloc(1, sizeof(*ch))))
		return NULL;
	ch->last = &ch->first;
	ch->base.fd = epoll_create1(EPOLL_CLOEXEC);
	ch->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	if (ch->base.fd < 0 || ch->kick < 0 || epoll_ctl(ch->base.fd, EPOLL_CTL_ADD, ch->kick, &ev)) {
		int e = errno;

		rdma_destroy_event_channel(&ch->base);
		errno = e;
		return NULL;
	}
	return &ch->base;
}

// Destroys the ids of requests that the program has not seen. All others must be destroyed before.
void rdma_destroy_event_channel(struct rdma_event_channel *base)
{
	struct channel *ch = (struct channel *)base;
	int seen = 0;

	if (host_has_cm()) {
		HOST(rdma_destroy_event_channel)(base);
		return;
	}
	pthread_mutex_lock(&cm_lock);
	while (ch->ids) {
		seen |= ch->ids->seen;
		forget(ch->ids);
	}
	pthread_mutex_unlock(&cm_lock);
	if (seen) {
		fprintf(stderr, "loop0: an event channel is destroyed before its ids\n");
		abort();
	}
	close(ch->kick);
	close(base->fd);
	free(ch);
}

static void taken(struct event *e, int n)
{
	((struct id *)e->base.id)->unacked += n;
	((struct id *)e->base.id)->seen = 1;
	if (e->base.listen_id)
		((struct id *)e->base.listen_id)->unacked += n;
}

static struct event *next_event(struct channel *ch) // returns NULL if no event is pending
{
	struct event *e = NULL;
	struct epoll_event ev[16];
	uint64_t one;
	int n, k;

	pthread_mutex_lock(&cm_lock);
	do {
		if (ch->first && read(ch->kick, &one, sizeof(one)) == sizeof(one)) {
			e = ch->first;
			ch->first = e->next;
			if (!ch->first)
				ch->last = &ch->first;
			break;
		}
		while (!ch->first && read(ch->kick, &one, sizeof(one)) == sizeof(one))
			; // drop the counts of events that forget freed
		n = epoll_wait(ch->base.fd, ev, 16, 0);
		for (k = 0; k < n && !ch->first; k++) {
			if (ev[k].data.ptr && (e = arrived(ev[k].data.ptr)))
				queue(ch, e);
			// This event may have freed the id of another event in ev. So drop the other events; the
			// next epoll_wait returns them again.
			if (ev[k].data.ptr)
				break;
		}
		e = NULL;
	} while (n > 0);
	if (e)
		taken(e, 1);
	pthread_mutex_unlock(&cm_lock);
	return e;
}

int rdma_get_cm_event(struct rdma_event_channel *base, struct rdma_cm_event **out)
{
	struct pollfd readable = { .fd = base->fd, .events = POLLIN };
	struct event *e;

	if (host_has_cm())
		return HOST(rdma_get_cm_event)(base, out);
	while (!(e = next_event((struct channel *)base))) {
		if (fcntl(base->fd, F_GETFL) & O_NONBLOCK)
			return fail(EAGAIN);
		if (poll(&readable, 1, -1) < 0)
			return -1;
	}
	e->next = NULL;
	*out = &e->base;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *e)
{
	if (host_has_cm())
		return HOST(rdma_ack_cm_event)(e);
	pthread_mutex_lock(&cm_lock);
	taken((struct event *)e, -1);
	pthread_cond_broadcast(&cm_acked);
	pthread_mutex_unlock(&cm_lock);
	free(e);
	return 0;
}

int rdma_create_id(struct rdma_event_channel *base, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	struct id *i;

	if (host_has_cm())
		return HOST(rdma_create_id)(base, id, context, ps);
	if (ps != RDMA_PS_TCP)
		return fail(EPROTONOSUPPORT);
	pthread_mutex_lock(&cm_lock);
	i = new_id((struct channel *)base, context, ps);
	if (i)
		i->seen = 1;
	pthread_mutex_unlock(&cm_lock);
	if (!i)
		return fail(ENOMEM);
	*id = &i->base;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct id *i = (struct id *)id;

	if (host_has_cm())
		return HOST(rdma_destroy_id)(id);
	pthread_mutex_lock(&cm_lock);
	while (i->unacked) // as librdmacm does: the event refers to the id
		pthread_cond_wait(&cm_acked, &cm_lock);
	if (i->state == REQ_READ)
		say(i, REJ, NULL);
	else if (i->state == UP)
		say(i, DREQ, NULL);
	for (struct id *k = i->ch->ids, *next; i->state == LISTENING && k; k = next) {
		next = k->next;
		if (k->listener == i && k->state == UNREAD)
			forget(k);
		else if (k->listener == i)
			k->listener = NULL;
	}
	forget(i);
	pthread_mutex_unlock(&cm_lock);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *to)
{
	struct id *i = (struct id *)id, **at;

	if (host_has_cm())
		return HOST(rdma_migrate_id)(id, to);
	pthread_mutex_lock(&cm_lock);
	if (i->sock >= 0)
		watch(i, EPOLL_CTL_DEL);
	for (at = &i->ch->ids; *at && *at != i; at = &(*at)->next)
		;
	if (*at)
		*at = i->next;
	i->ch = (struct channel *)to;
	id->channel = to;
	i->next = i->ch->ids;
	i->ch->ids = i;
	if (i->sock >= 0)
		watch(i, EPOLL_CTL_ADD);
	pthread_mutex_unlock(&cm_lock);
	return 0;
}

// The device has one address, 127.0.0.1.
static int is_local(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET && ((const struct sockaddr_in *)sa)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *sa)
{
	struct id *i = (struct id *)id;
	struct sockaddr_un un;
	uint16_t port;
	int tries, rc = -1;

	if (host_has_cm())
		return HOST(rdma_bind_addr)(id, sa);
	if (!is_local(sa))
		return fail(EADDRNOTAVAIL);
	pthread_mutex_lock(&cm_lock);
	if (i->state != IDLE) {
		pthread_mutex_unlock(&cm_lock);
		return fail(EINVAL);
	}
	i->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	port = ntohs(in_of(sa)->sin_port);
	for (tries = 0; i->sock >= 0 && rc && tries < (port ? 1 : 20000); tries++) {
		uint16_t p = port ? port : (next_port = next_port < 60000 ? next_port + 1 : 40000);

		rc = bind(i->sock, (struct sockaddr *)&un, name_of(&un, p));
		if (!rc) {
			*local_of(i) = *in_of(sa);
			local_of(i)->sin_port = htons(p);
			i->state = BOUND;
			rc = bind_device(i);
		}
	}
	if (rc)
		hang_up(i);
	pthread_mutex_unlock(&cm_lock);
	return rc;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct id *i = (struct id *)id;
	int rc;

	if (host_has_cm())
		return HOST(rdma_listen)(id, backlog);
	pthread_mutex_lock(&cm_lock);
	rc = i->state == BOUND ? listen(i->sock, backlog > 0 ? backlog : 128) : fail(EINVAL);
	if (!rc)
		rc = watch(i, EPOLL_CTL_ADD);
	if (!rc)
		i->state = LISTENING;
	pthread_mutex_unlock(&cm_lock);
	return rc;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct id *i = (struct id *)id;
	int rc = 0;

	if (host_has_cm())
		return HOST(rdma_resolve_addr)(id, src, dst, timeout_ms);
	if (src && !is_local(src))
		return fail(EADDRNOTAVAIL);
	if (!is_local(dst))
		return fail(ENETUNREACH);
	pthread_mutex_lock(&cm_lock);
	if (i->state != IDLE) {
		rc = fail(EINVAL);
	} else if (!(rc = bind_device(i))) {
		*remote_of(i) = *in_of(dst);
		*local_of(i) = src ? *in_of(src) : *in_of(dst);
		if (!src || !local_of(i)->sin_port)
			local_of(i)->sin_port = htons(next_port = next_port < 60000 ? next_port + 1 : 40000);
		i->state = RESOLVED;
		queue_kind(i, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	}
	pthread_mutex_unlock(&cm_lock);
	return rc;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct id *i = (struct id *)id;
	int rc = 0;

	if (host_has_cm())
		return HOST(rdma_resolve_route)(id, timeout_ms);
	pthread_mutex_lock(&cm_lock);
	if (i->state == RESOLVED) {
		i->state = ROUTED;
		queue_kind(i, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	} else {
		rc = fail(EINVAL);
	}
	pthread_mutex_unlock(&cm_lock);
	return rc;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *c)
{
	struct id *i = (struct id *)id;
	struct sockaddr_un un;
	int rc = 0;

	if (host_has_cm())
		return HOST(rdma_connect)(id, c);
	if (c->private_data_len > room[REQ])
		return fail(EINVAL);
	pthread_mutex_lock(&cm_lock);
	if (i->state != ROUTED) {
		rc = fail(EINVAL);
	} else {
		i->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (i->sock < 0) {
			rc = -1;
		} else if (connect(i->sock, (struct sockaddr *)&un, name_of(&un, ntohs(remote_of(i)->sin_port))) || say(i, REQ, c)) {
			int reason = errno == EAGAIN ? 28 : 8; // 28: the backlog is full; 8: nobody listens
			hang_up(i);
			i->state = OVER;
			queue_kind(i, RDMA_CM_EVENT_REJECTED, reason);
		} else {
			i->state = REQ_SENT;
			watch(i, EPOLL_CTL_ADD);
		}
	}
	pthread_mutex_unlock(&cm_lock);
	return rc;
}

// Sends a message and sets the state of the id to next. Fails with EINVAL if the state of the id is
// not in the bit mask states.
static int step(struct id *i, unsigned int states, enum message m, const struct rdma_conn_param *c, enum id_state next)
{
	int rc;

	pthread_mutex_lock(&cm_lock);
	rc = states & 1u << i->state ? say(i, m, c) : fail(EINVAL);
	if (!rc)
		i->state = next;
	pthread_mutex_unlock(&cm_lock);
	return rc;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *c)
{
	return host_has_cm() ? HOST(rdma_accept)(id, c) : step((struct id *)id, 1u << REQ_READ, REP, c, REP_SENT);
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	struct rdma_conn_param c = { .private_data = data, .private_data_len = len };

	if (host_has_cm())
		return HOST(rdma_reject)(id, data, len);
	return step((struct id *)id, 1u << REQ_READ | 1u << REP_READ, REJ, &c, OVER);
}

int rdma_establish(struct rdma_cm_id *id)
{
	return host_has_cm() ? HOST(rdma_establish)(id) : step((struct id *)id, 1u << REP_READ, RTU, NULL, UP);
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	return host_has_cm() ? HOST(rdma_notify)(id, event) : 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct id *i = (struct id *)id;

	if (host_has_cm())
		return HOST(rdma_disconnect)(id);
	if (i->state == DREQ_READ)
		return step(i, 1u << DREQ_READ, DREP, NULL, OVER);
	return step(i, 1u << UP | 1u << REP_SENT, DREQ, NULL, DREQ_SENT);
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	struct id *i = (struct id *)id;
	int rc = 0;

	if (host_has_cm())
		return HOST(rdma_init_qp_attr)(id, a, mask);
	pthread_mutex_lock(&cm_lock);
	*mask = IBV_QP_STATE;
	if (i->state != REQ_READ && i->state != REP_READ &&
		(a->qp_state != IBV_QPS_INIT || i->state < RESOLVED || i->state == OVER)) {
		rc = fail(EINVAL);
	} else if (a->qp_state == IBV_QPS_INIT) {
		a->port_num = 1;
		*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	} else if (a->qp_state == IBV_QPS_RTR) {
		a->ah_attr.is_global = 1;
		a->ah_attr.grh.dgid = i->peer.gid;
		a->ah_attr.port_num = 1;
		a->dest_qp_num = i->peer.qpn;
		a->path_mtu = IBV_MTU_4096;
		a->max_dest_rd_atomic = i->peer.out;
		*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER;
	} else {
		a->timeout = 14;
		a->retry_cnt = i->peer.retry;
		a->rnr_retry = i->peer.rnr;
		a->max_rd_atomic = i->peer.in;
		*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	pthread_mutex_unlock(&cm_lock);
	return rc;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t size)
{
	return host_has_cm() ? HOST(rdma_set_option)(id, level, name, value, size) : 0;
}

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (host_has_cm())
		return HOST(rdma_set_local_ece)(id, ece);
	if (!ece->vendor_id)
		return fail(EINVAL);
	((struct id *)id)->ece = *ece;
	return 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (host_has_cm())
		return HOST(rdma_get_remote_ece)(id, ece);
	*ece = ((struct id *)id)->peer.ece;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return host_has_cm() ? HOST(rdma_create_qp)(id, pd, attr) : fail(EOPNOTSUPP);
}
