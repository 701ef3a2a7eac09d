//go:build linux && cgo

#include "sockaddr.h"
#include <arpa/inet.h>
#include <string.h>

socklen_t cv_to_sockaddr(const struct cv_addr *a, struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof(*ss));
	if (a->family == 4) {
		struct sockaddr_in *s = (struct sockaddr_in *)ss;

		s->sin_family = AF_INET;
		s->sin_port = htons(a->port);
		memcpy(&s->sin_addr, a->ip, 4);
		return sizeof(*s);
	}
	if (a->family == 6) {
		struct sockaddr_in6 *s = (struct sockaddr_in6 *)ss;

		s->sin6_family = AF_INET6;
		s->sin6_port = htons(a->port);
		s->sin6_scope_id = a->scope;
		memcpy(&s->sin6_addr, a->ip, 16);
		return sizeof(*s);
	}
	return 0;
}

void cv_from_sockaddr(const struct sockaddr *sa, struct cv_addr *a)
{
	memset(a, 0, sizeof(*a));
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *s = (const struct sockaddr_in *)sa;

		a->family = 4;
		a->port = ntohs(s->sin_port);
		memcpy(a->ip, &s->sin_addr, 4);
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *s = (const struct sockaddr_in6 *)sa;

		a->family = 6;
		a->port = ntohs(s->sin6_port);
		a->scope = s->sin6_scope_id;
		memcpy(a->ip, &s->sin6_addr, 16);
	}
}
