// Conversion between struct cv_addr and struct sockaddr.
#ifndef GODAT_CVERBS_SOCKADDR_H
#define GODAT_CVERBS_SOCKADDR_H

#include "shim.h"
#include <netinet/in.h>
#include <sys/socket.h>

// Returns the length of the address in *ss, or 0 if a->family is neither 4 nor 6.
socklen_t cv_to_sockaddr(const struct cv_addr *a, struct sockaddr_storage *ss);
void cv_from_sockaddr(const struct sockaddr *sa, struct cv_addr *a);

#endif
