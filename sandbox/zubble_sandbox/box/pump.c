/* Bytes between pairs of descriptors, for the relay and the forwarder: both ways at once, so that neither waits. */
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PUMP_BYTES = 32 * 1024, BACKLOG = 64, CONNECT_TRIES = 250, CONNECT_PAUSE_NANOSECONDS = 20000000 };

struct pump {
    int from, to;
    size_t at, end;
    bool ended;
    unsigned char data[PUMP_BYTES];
};
static struct connection {
    bool used;
    struct pump ways[2];
} connections[MAX_CONNECTIONS];
static int listener = -1;
static struct sockaddr_un target;
static socklen_t target_size;

socklen_t unix_address(struct sockaddr_un *address, const char *path)
{
    size_t size = strlen(path);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (size >= sizeof address->sun_path)
        return 0;
    memcpy(address->sun_path, path, size);
    if (*path == '@')
        *address->sun_path = 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + (*path != '@'));
}

static bool set_target(const char *path)
{
    return (target_size = unix_address(&target, path)) != 0;
}

static int connect_once(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&target, target_size)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool join(int in, int out, int both)
{
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        struct connection *connection = &connections[i];
        if (connection->used)
            continue;
        connection->used = true;
        connection->ways[0].from = in, connection->ways[0].to = both;
        connection->ways[1].from = both, connection->ways[1].to = out;
        for (int way = 0; way < 2; way++) {
            connection->ways[way].at = connection->ways[way].end = 0;
            connection->ways[way].ended = false;
        }
        return true;
    }
    return false;
}

static void leave(struct connection *connection)
{
    close(connection->ways[0].from);
    close(connection->ways[0].to);
    if (connection->ways[1].to != connection->ways[0].from)
        close(connection->ways[1].to);
    connection->used = false;
}

/* False when one side is broken. */
static bool pump_once(struct pump *pump)
{
    ssize_t moved;
    if (pump->at == pump->end) {
        pump->at = pump->end = 0;
        moved = read(pump->from, pump->data, sizeof pump->data);
        pump->end = moved > 0 ? (size_t)moved : 0;
        pump->ended = moved == 0;
        if (pump->ended)
            shutdown(pump->to, SHUT_WR);
    } else {
        moved = write(pump->to, pump->data + pump->at, pump->end - pump->at);
        pump->at += moved > 0 ? (size_t)moved : 0;
    }
    return moved >= 0 || errno == EAGAIN || errno == EINTR;
}

static void accept_one(void)
{
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int fd = peer < 0 ? -1 : connect_once();
    if (fd >= 0 && join(peer, peer, fd))
        return;
    if (fd >= 0)
        close(fd);
    if (peer >= 0)
        close(peer);
}

size_t pumps_polled(struct pollfd *polled)
{
    size_t count = 0;
    polled[count++] = (struct pollfd){listener, POLLIN, 0};
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        for (int way = 0; connections[i].used && way < 2; way++) {
            const struct pump *pump = &connections[i].ways[way];
            bool full = pump->at < pump->end;
            /* After its last byte the socket's end is watched for hanging up: a silent client would stay. */
            int fd = full ? pump->to : pump->ended && !way ? -1 : pump->from;
            polled[count++] = (struct pollfd){fd, full ? POLLOUT : pump->ended ? 0 : POLLIN, 0};
        }
    }
    return count;
}

void pumps_ready(const struct pollfd *polled)
{
    bool knocked = polled++->revents != 0;
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        struct connection *connection = &connections[i];
        if (!connection->used)
            continue;
        bool whole = true;
        for (int way = 0; way < 2; way++, polled++)
            if (whole && polled->revents)
                whole = !connection->ways[way].ended && pump_once(&connection->ways[way]);
        if (!whole || (connection->ways[0].ended && connection->ways[1].ended))
            leave(connection);
    }
    if (knocked)
        accept_one();
}

static bool pump_all(void)
{
    struct pollfd polled[2 * MAX_CONNECTIONS + 1];
    size_t count = pumps_polled(polled);
    if (poll(polled, count, -1) < 0)
        return errno == EINTR;
    pumps_ready(polled);
    return true;
}

int listening(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)
        && !bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, BACKLOG))
        return fd;
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

bool forward_open(int port, const char *path)
{
    return set_target(path) && (listener = listening(port)) >= 0;
}

int forward(int port, const char *path)
{
    if (!forward_open(port, path))
        return NO_SYSTEM;
    while (pump_all())
        continue;
    return NO_SYSTEM;
}

int relay(const char *path)
{
    struct timespec pause = {.tv_nsec = CONNECT_PAUSE_NANOSECONDS};
    int fd = -1;
    for (int i = 0; set_target(path) && fd < 0 && i < CONNECT_TRIES; i++)
        if ((fd = connect_once()) < 0)
            nanosleep(&pause, NULL);
    if (fd < 0)
        return NO_SYSTEM;
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
    join(0, 1, fd);
    while (connections[0].used && !connections[0].ways[1].ended && pump_all())
        continue;
    return 0;
}
