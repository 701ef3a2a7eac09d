//go:build linux && cgo

// Looks up addresses by name, and creates ids from the results.

#include "shim.h"
#include "sockaddr.h"
#include <netdb.h>
#include <string.h>

static int family_of(int32_t n) { return n == 4 ? AF_INET : n == 6 ? AF_INET6 : 0; }

// Converts an addrinfo. The result points to the addresses, which are stored in src and dst.
static struct rdma_addrinfo to_rdma(const struct cv_addrinfo *in, struct sockaddr_storage *src,
	struct sockaddr_storage *dst)
{
	struct rdma_addrinfo out = {
		.ai_flags = (int)in->flags,
		.ai_family = family_of(in->family),
		.ai_qp_type = (int)in->qp_type,
		.ai_port_space = (int)in->port_space,
		.ai_src_len = cv_to_sockaddr(&in->src, src),
		.ai_dst_len = cv_to_sockaddr(&in->dst, dst),
	};

	if (out.ai_src_len)
		out.ai_src_addr = (struct sockaddr *)src;
	if (out.ai_dst_len)
		out.ai_dst_addr = (struct sockaddr *)dst;
	return out;
}

int cv_getaddrinfo(const char *node, const char *service, const struct cv_addrinfo *hints, struct cv_addrinfo *all,
	int max)
{
	struct sockaddr_storage src, dst;
	struct rdma_addrinfo h = to_rdma(hints, &src, &dst), *list = NULL, *r;
	int n = 0, rc;

	errno = 0;
	rc = rdma_getaddrinfo(*node ? node : NULL, *service ? service : NULL, &h, &list);
	if (rc == -1 || rc == EAI_SYSTEM)
		return errno ? -errno : -EIO;
	if (rc)
		return rc < 0 ? CV_EAI + rc : -rc;
	for (r = list; r && n < max; r = r->ai_next) {
		struct cv_addrinfo *a = &all[n];

		memset(a, 0, sizeof(*a));
		a->flags = (uint32_t)r->ai_flags;
		a->qp_type = (uint32_t)r->ai_qp_type;
		a->port_space = (uint32_t)r->ai_port_space;
		if (r->ai_src_addr)
			cv_from_sockaddr(r->ai_src_addr, &a->src);
		if (r->ai_dst_addr)
			cv_from_sockaddr(r->ai_dst_addr, &a->dst);
		if (a->src.family || a->dst.family) // skip results that have only AF_IB addresses
			n++;
	}
	rdma_freeaddrinfo(list);
	return n;
}

int cv_create_ep(const struct cv_addrinfo *info, struct rdma_cm_id **id)
{
	struct sockaddr_storage src, dst;
	struct rdma_addrinfo r = to_rdma(info, &src, &dst);

	return rdma_create_ep(id, &r, NULL, NULL) ? (errno ? errno : EIO) : 0;
}
