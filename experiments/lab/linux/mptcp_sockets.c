/* Preloaded into a program (LD_PRELOAD), which then uses Multipath TCP in place of TCP.
 *
 * The program's calls of socket() for TCP open a Multipath TCP socket, or a TCP socket if the kernel
 * refuses. Child processes inherit the environment variable, and with it this library.
 */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TYPE_MASK 0xf /* other bits of a socket's type are flags */
#define PROTOCOL_TCP 6
#define PROTOCOL_MPTCP 262

int socket(int family, int type, int protocol)
{
    int is_ip = family == AF_INET || family == AF_INET6;
    int is_tcp = (type & TYPE_MASK) == SOCK_STREAM && (!protocol || protocol == PROTOCOL_TCP);

    if (is_ip && is_tcp) {
        int opened = syscall(SYS_socket, family, type, PROTOCOL_MPTCP);
        if (opened >= 0)
            return opened;
    }
    return syscall(SYS_socket, family, type, protocol);
}
