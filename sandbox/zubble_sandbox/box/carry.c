/* Connections to a port, as frames on standard input and output: for a worker that no file is shared with. */
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    WINDOW_BYTES = 64 * 1024, /* on the way to either side of a connection, at most */
    PIECE_BYTES = 16 * 1024,
    SILENCE_SECONDS = 60, /* a worker that says nothing for so long is gone */
    LISTEN_TRIES = 250,   /* an earlier one may not have noticed yet that it is alone */
    LISTEN_PAUSE_NANOSECONDS = 20000000,
};

static struct caller {
    uint32_t id; /* 0: none */
    int fd;
    bool said_all, heard_all, shut; /* the client; the worker, and the client knows */
    size_t credit;                  /* bytes that the worker still takes */
    size_t at, held;                /* a ring of what the client has not taken yet */
    unsigned char data[WINDOW_BYTES];
} callers[MAX_CONNECTIONS];
static int listener = -1;

static void say(int kind, uint32_t id, const void *payload, size_t size)
{
    static unsigned char frame[HEADER_BYTES + PIECE_BYTES];
    put_number(frame, (uint32_t)size);
    frame[4] = (unsigned char)kind;
    put_number(frame + 5, id);
    memcpy(frame + HEADER_BYTES, payload, size);
    if (!write_all(STDOUT_FILENO, frame, HEADER_BYTES + size))
        exit(NO_SYSTEM);
}

static void part(struct caller *caller, bool tell)
{
    if (tell)
        say(GONE, caller->id, "", 0);
    close(caller->fd);
    caller->id = 0;
}

static struct caller *caller_of(uint32_t id)
{
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (callers[i].id == id)
            return &callers[i];
    return NULL;
}

static void welcome(struct caller *caller)
{
    static uint32_t last;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    last += last == UINT32_MAX ? 2 : 1;
    caller->id = last;
    caller->fd = fd;
    caller->said_all = caller->heard_all = caller->shut = false;
    caller->credit = WINDOW_BYTES;
    caller->at = caller->held = 0;
    say(OPENED, caller->id, "", 0);
}

static bool waits(int error)
{
    return error == EAGAIN || error == EINTR;
}

static void hear(struct caller *caller)
{
    unsigned char data[PIECE_BYTES];
    ssize_t got = read(caller->fd, data, caller->credit < sizeof data ? caller->credit : sizeof data);
    if (got > 0) {
        caller->credit -= (size_t)got;
        say(CHUNK, caller->id, data, (size_t)got);
    } else if (got == 0) {
        caller->said_all = true;
        say(END, caller->id, "", 0);
    } else if (!waits(errno)) {
        part(caller, true);
    }
}

static void give(struct caller *caller)
{
    size_t piece = caller->held < WINDOW_BYTES - caller->at ? caller->held : WINDOW_BYTES - caller->at;
    ssize_t put = write(caller->fd, caller->data + caller->at, piece);
    unsigned char number[4];
    if (put >= 0) {
        caller->at = (caller->at + (size_t)put) % WINDOW_BYTES;
        caller->held -= (size_t)put;
        put_number(number, (uint32_t)put);
        say(ROOM, caller->id, number, sizeof number);
    } else if (!waits(errno)) {
        part(caller, true);
    }
}

static void settle(struct caller *caller)
{
    if (!caller->heard_all || caller->held)
        return;
    if (caller->said_all)
        part(caller, false);
    else if (!caller->shut)
        caller->shut = !shutdown(caller->fd, SHUT_WR);
}

static bool keep(struct caller *caller, const unsigned char *data, size_t size)
{
    size_t end = (caller->at + caller->held) % WINDOW_BYTES;
    size_t first = size < WINDOW_BYTES - end ? size : WINDOW_BYTES - end;
    if (size > WINDOW_BYTES - caller->held)
        return false;
    memcpy(caller->data + end, data, first);
    memcpy(caller->data, data + first, size - first);
    caller->held += size;
    return true;
}

static bool take_all(unsigned char *data, size_t size)
{
    while (size > 0) {
        ssize_t got = read(STDIN_FILENO, data, size);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        data += got > 0 ? got : 0;
        size -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* One frame of the worker's; false at the end of it all. A connection that is gone by now needs none. */
static bool obey(void)
{
    static unsigned char payload[WINDOW_BYTES];
    unsigned char header[HEADER_BYTES];
    if (!take_all(header, sizeof header) || get_number(header) > sizeof payload)
        return false;
    size_t size = get_number(header);
    uint32_t id = get_number(header + 5);
    if (!take_all(payload, size))
        return false;
    alarm(SILENCE_SECONDS);
    struct caller *caller = id ? caller_of(id) : NULL;
    if (!caller)
        return true;
    switch (header[4]) {
    case CHUNK: return !caller->heard_all && keep(caller, payload, size);
    case END: caller->heard_all = true; return true;
    case GONE: part(caller, false); return true;
    case ROOM: caller->credit += size == 4 ? get_number(payload) : 0; return caller->credit <= WINDOW_BYTES;
    default: return false;
    }
}

static short wanted(const struct caller *caller)
{
    return (short)((caller->credit && !caller->said_all ? POLLIN : 0) | (caller->held ? POLLOUT : 0));
}

static void serve(struct caller *caller, short met)
{
    short want = wanted(caller);
    if (met & ~POLLIN && want & POLLOUT)
        give(caller);
    if (caller->id && met & ~POLLOUT && want & POLLIN)
        hear(caller);
    if (caller->id && met && !want)
        part(caller, true); /* nothing was waited for but its breaking off */
}

static bool carry_all(void)
{
    struct pollfd polled[MAX_CONNECTIONS + 2];
    struct caller *place = caller_of(0);
    polled[0] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
    polled[1] = (struct pollfd){place ? listener : -1, POLLIN, 0};
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        const struct caller *caller = &callers[i];
        /* A client that has more to say than the worker takes is left alone, even by its end. */
        bool idle = !caller->id || (!wanted(caller) && !caller->said_all);
        polled[2 + i] = (struct pollfd){idle ? -1 : caller->fd, wanted(caller), 0};
    }
    if (poll(polled, MAX_CONNECTIONS + 2, -1) < 0)
        return errno == EINTR;
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (polled[2 + i].revents)
            serve(&callers[i], polled[2 + i].revents);
    if (polled[1].revents)
        welcome(place);
    if (polled[0].revents && !obey())
        return false;
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (callers[i].id)
            settle(&callers[i]);
    return true;
}

int carry(int port)
{
    struct timespec pause = {.tv_nsec = LISTEN_PAUSE_NANOSECONDS};
    alarm(SILENCE_SECONDS);
    for (int i = 0; (listener = listening(port)) < 0 && i < LISTEN_TRIES; i++)
        nanosleep(&pause, NULL);
    if (listener < 0) {
        fprintf(stderr, "zubble-box: cannot listen at port %d: %s\n", port, strerror(errno));
        return NO_SYSTEM;
    }
    say(OPENED, 0, "", 0);
    while (carry_all())
        continue;
    return 0;
}
