/* Sockets of OpenPGM, encapsulated in UDP, as senders and receivers open them. */
#include <pgm/pgm.h>

#include "give_up.h"

static void set(pgm_sock_t *sock, int option, int value)
{
    if (!pgm_setsockopt(sock, IPPROTO_PGM, option, &value, sizeof value))
        give_up("an option of OpenPGM");
}

/* Open a socket for a group on the interface with an address. Its own options come next, and then connect_pgm(). */
static pgm_sock_t *open_pgm(const char *address, const char *group, int port, struct pgm_addrinfo_t **found)
{
    pgm_error_t *error = NULL;
    pgm_sock_t *sock;
    char network[64];
    snprintf(network, sizeof network, "%s;%s", address, group);
    if (!pgm_getaddrinfo(network, NULL, found, &error) ||
        !pgm_socket(&sock, AF_INET, SOCK_SEQPACKET, IPPROTO_UDP, &error))
        give_up(error ? error->message : "OpenPGM");
    set(sock, PGM_UDP_ENCAP_UCAST_PORT, port);
    set(sock, PGM_UDP_ENCAP_MCAST_PORT, port);
    set(sock, PGM_MTU, 1500);
    return sock;
}

static void connect_pgm(pgm_sock_t *sock, const char *address, struct pgm_addrinfo_t *found)
{
    pgm_error_t *error = NULL;
    struct pgm_sockaddr_t name = {.sa_port = DEFAULT_DATA_DESTINATION_PORT};
    struct pgm_interface_req_t interface = {.ir_interface = found->ai_send_addrs[0].gsr_interface};
    if (!pgm_gsi_create_from_string(&name.sa_addr.gsi, address, -1))
        give_up("an identifier of OpenPGM");
    if (!pgm_bind3(sock, &name, sizeof name, &interface, sizeof interface, &interface, sizeof interface, &error))
        give_up(error ? error->message : "pgm_bind3");
    for (unsigned number = 0; number < found->ai_recv_addrs_len; number++)
        if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_JOIN_GROUP, &found->ai_recv_addrs[number], sizeof(struct group_req)))
            give_up("PGM_JOIN_GROUP");
    if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_SEND_GROUP, &found->ai_send_addrs[0], sizeof(struct group_req)))
        give_up("PGM_SEND_GROUP");
    set(sock, PGM_MULTICAST_LOOP, 0);
    set(sock, PGM_MULTICAST_HOPS, 1);
    set(sock, PGM_NOBLOCK, 1);
    if (!pgm_connect(sock, &error))
        give_up(error ? error->message : "pgm_connect");
    pgm_freeaddrinfo(found);
}
