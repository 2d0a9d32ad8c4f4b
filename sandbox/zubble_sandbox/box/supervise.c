/* Serve one worker until it is gone: process 1 of a namespace, or the head of a process tree without one. */
#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CALLERS = 8, MAX_KEPT = 8, SECRET_BYTES = 256, BACKLOG = 16, MAX_WAIT_SECONDS = 3600, LAST_SIGNAL = 31 };

static const double START_SECONDS = 60;  /* to be set up in */
static const double CALLER_SECONDS = 5;  /* to prove who one is */

static int listener = -1, next_fd = -1, children_fd = -1, kept[MAX_KEPT], kept_count;
static bool is_set_up, has_key;
static unsigned char key[SHA256_BYTES];
static double end_of_life, linger, lost_at = INFINITY;

/* Connections that have not proved yet that they know the secret. */
static struct caller {
    int fd;
    double until;
    size_t size;
    unsigned char data[HEADER_BYTES + SECRET_BYTES];
} callers[MAX_CALLERS];

double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool over(void)
{
    return now() >= end_of_life || (line_fd < 0 && now() >= lost_at + linger);
}

/* The newest connection counts; whoever waits on the old one notices that it is lost. */
static void admit(int fd)
{
    if (next_fd >= 0)
        close(next_fd);
    next_fd = fd;
    line_lost = true;
}

static void dismiss(struct caller *caller)
{
    close(caller->fd);
    caller->fd = -1;
}

static void accept_one(void)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (!has_key) {
        admit(fd);
        return;
    }
    struct caller *caller = &callers[0];
    for (int i = 0; i < MAX_CALLERS && caller->fd >= 0; i++)
        if (callers[i].fd < 0 || callers[i].until < caller->until)
            caller = &callers[i];
    if (caller->fd >= 0)
        dismiss(caller);
    *caller = (struct caller){.fd = fd, .until = now() + CALLER_SECONDS};
}

static bool knows_the_secret(const struct caller *caller)
{
    unsigned char digest[SHA256_BYTES], difference = 0;
    sha256(caller->data + HEADER_BYTES, caller->size - HEADER_BYTES, digest);
    for (int i = 0; i < SHA256_BYTES; i++)
        difference |= digest[i] ^ key[i];
    return difference == 0;
}

/* Read on in the first frame of a connection; nothing behind it is read. */
static void hear(struct caller *caller)
{
    bool begun = caller->size >= HEADER_BYTES;
    size_t wanted = HEADER_BYTES + (begun ? get_number(caller->data) : 0);
    ssize_t got = read(caller->fd, caller->data + caller->size, wanted - caller->size);
    if (got <= 0 && (got == 0 || (errno != EAGAIN && errno != EINTR))) {
        dismiss(caller);
        return;
    }
    caller->size += got > 0 ? (size_t)got : 0;
    if (caller->size < HEADER_BYTES)
        return;
    if (get_number(caller->data) - 1 >= SECRET_BYTES || caller->data[4] != AUTH) {
        dismiss(caller);
    } else if (caller->size == HEADER_BYTES + get_number(caller->data)) {
        unsigned char answer[HEADER_BYTES] = {[4] = OK};
        memcpy(answer + 5, caller->data + 5, 4);
        if (knows_the_secret(caller) && write(caller->fd, answer, sizeof answer) == sizeof answer) {
            admit(caller->fd);
            caller->fd = -1;
        } else {
            dismiss(caller);
        }
    }
}

static size_t callers_polled(struct pollfd *polled)
{
    for (int i = 0; i < MAX_CALLERS; i++)
        polled[i] = (struct pollfd){callers[i].fd, POLLIN, 0};
    return MAX_CALLERS;
}

static void callers_ready(const struct pollfd *polled)
{
    for (int i = 0; i < MAX_CALLERS; i++) {
        if (callers[i].fd >= 0 && polled[i].revents)
            hear(&callers[i]);
        if (callers[i].fd >= 0 && now() >= callers[i].until)
            dismiss(&callers[i]);
    }
}

static int milliseconds_to_wait(void)
{
    double until = fmin(end_of_life, command_deadline());
    if (line_fd < 0)
        until = fmin(until, lost_at + linger);
    for (int i = 0; i < MAX_CALLERS; i++)
        if (callers[i].fd >= 0)
            until = fmin(until, callers[i].until);
    return (int)ceil(fmax(0, fmin(until - now(), MAX_WAIT_SECONDS)) * 1000);
}

static void collect_children(void)
{
    struct signalfd_siginfo info[16];
    while (read(children_fd, info, sizeof info) > 0)
        continue;
    reap(false);
}

bool turn(short events)
{
    struct pollfd polled[MAX_POLLED] = {
        {line_lost ? -1 : line_fd, events, 0}, {listener, POLLIN, 0}, {children_fd, POLLIN, 0}};
    size_t commands = 3, calling = commands + command_polled(polled + commands);
    size_t pumps = calling + callers_polled(polled + calling), count = pumps + pumps_polled(polled + pumps);
    if (poll(polled, count, milliseconds_to_wait()) < 0)
        return false;
    command_ready(polled + commands);
    if (polled[2].revents)
        collect_children();
    if (command_over())
        command_finish();
    pumps_ready(polled + pumps);
    callers_ready(polled + calling);
    if (polled[1].revents)
        accept_one();
    if (over())
        line_lost = true;
    return !line_lost && polled[0].revents;
}

static void limit_fields(struct fields *fields)
{
    limits.pids = (unsigned long long)number_field(fields);
    limits.open_files = (unsigned long long)number_field(fields);
    limits.file_bytes = (unsigned long long)number_field(fields);
    limits.memory_bytes = (unsigned long long)number_field(fields);
}

/* A descriptor, or the first path that opens; none is no error. */
static int open_oom_counter(const char *where)
{
    char path[PATH_MAX];
    if (*where && where[strspn(where, "0123456789")] == 0)
        return atoi(where);
    while (*where) {
        size_t size = strcspn(where, ":");
        snprintf(path, sizeof path, "%.*s", (int)size, where);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            return fd;
        where += size + (where[size] == ':');
    }
    return -1;
}

static bool is_ours(int fd)
{
    const int used[] = {0, 1, 2, line_fd, next_fd, listener, children_fd, oom_fd};
    bool ours = command_uses(fd);
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        ours = ours || fd == used[i];
    for (int i = 0; i < MAX_CALLERS; i++)
        ours = ours || fd == callers[i].fd;
    for (int i = 0; i < kept_count; i++)
        ours = ours || fd == kept[i];
    return ours;
}

/* Whoever started this process may have left descriptors open: no command sees one, and we keep those we need. */
static void put_away(bool close_them)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        int fd = atoi(entry->d_name);
        if (is_ours(fd) || fd == dirfd(folder))
            continue;
        if (close_them)
            close(fd);
        else
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    if (folder)
        closedir(folder);
}

static int set_up(struct fields *fields)
{
    const char *mode = text_field(fields);
    double life = number_field(fields);
    if (is_set_up) {
        end_of_life = now() + life;
        return DONE;
    }
    limit_fields(fields);
    linger = number_field(fields);
    background = number_field(fields) != 0;
    const char *oom = text_field(fields);
    int port = (int)number_field(fields);
    const char *path = text_field(fields);
    if (!mode || !oom || !path)
        return refuse_value("a setup needs its fields");
    bool namespace = !strcmp(mode, "namespace");
    if (namespace && getpid() != 1)
        _exit(NO_NAMESPACE); /* a signal to "all others" would reach everything else of this user */
    reach = namespace ? NAMESPACE : TREE;
    if (reach == TREE && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
        return refuse_os(errno);
    oom_fd = open_oom_counter(oom);
    put_away(true);
    for (const char *name, *folder; (name = text_field(fields)) && (folder = text_field(fields));)
        if (!add_root(name, folder))
            return refuse_os(errno);
    if (work_folder() < 0)
        return refuse_value("a setup needs a work folder");
    if (port && !forward_open(port, path))
        return refuse_os(errno);
    end_of_life = now() + life;
    is_set_up = true;
    return DONE;
}

static int serve_one(int kind, uint32_t call, struct fields *fields)
{
    switch (kind) {
    case SETUP: return set_up(fields);
    case EXEC: return command_exec(call, fields);
    case WAIT: return command_wait(call, fields);
    case KILL: return command_kill(fields);
    case FREEZE: return command_freeze(), DONE;
    case THAW: return command_thaw(), DONE;
    case PING: return DONE;
    case LEAVE: return end_of_life = 0, DONE;
    case READ: return serve_read(call, fields);
    case WRITE: return serve_write(call, fields);
    case LIST: return serve_list(call, fields);
    case SNAPSHOT: return serve_snapshot(call, fields);
    case RESTORE: return serve_restore(call);
    default: return refuse_value("there is no request %d", kind);
    }
}

static void serve(void)
{
    struct fields fields;
    uint32_t call;
    int kind;
    if (!receive(&kind, &call, &fields))
        return;
    if (!is_set_up && kind != SETUP) {
        line_lost = true;
        return;
    }
    body_begin();
    int result = serve_one(kind, call, &fields);
    if (kind == WRITE || kind == RESTORE)
        body_drain(call); /* so that the next frame is a request again */
    if (result == DONE)
        out_send(OK, call);
    else if (result == REFUSED)
        send_refusal(call);
    if (result == REFUSED && kind == SETUP)
        end_of_life = 0; /* half of one is none */
}

static void next_line(void)
{
    if (line_fd >= 0) {
        close(line_fd);
        lost_at = now();
        command_unawaited();
    }
    line_fd = next_fd;
    next_fd = -1;
    line_lost = line_fd < 0;
}

static void serve_until_the_end(void)
{
    end_of_life = now() + START_SECONDS;
    for (;;) {
        if (line_lost)
            next_line();
        if (over() || (line_fd < 0 && listener < 0))
            return;
        if (turn(POLLIN))
            serve();
        command_report();
    }
}

static void harden(void)
{
    sigset_t children;
    umask(022);
    command_prepare();
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
        exit(NO_SYSTEM);
    for (int number = 1; number <= LAST_SIGNAL; number++)
        if (number != SIGCHLD)
            signal(number, SIG_IGN);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_SETMASK, &children, NULL);
    children_fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    for (int i = 0; i < MAX_CALLERS; i++)
        callers[i].fd = -1;
    put_away(false);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address;
    socklen_t size = unix_address(&address, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    umask(077);
    if (fd < 0 || !size || bind(fd, (struct sockaddr *)&address, size) || listen(fd, BACKLOG)) {
        fprintf(stderr, "zubble-box: cannot listen at %s: %s\n", path, size ? strerror(errno) : "too long");
        exit(NO_SYSTEM);
    }
    return fd;
}

static bool read_key(const char *text)
{
    bool whole = strlen(text) == 2 * SHA256_BYTES;
    for (int i = 0; i < SHA256_BYTES && whole; i++)
        whole = sscanf(text + 2 * i, "%2hhx", &key[i]) == 1;
    return whole;
}

static int inherited(const char *text)
{
    int fd = atoi(text);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

int supervise(int argc, char **argv)
{
    bool named = false;
    for (; argc > 1; argc -= 2, argv += 2) {
        if (!strcmp(argv[0], "--fd"))
            admit(inherited(argv[1]));
        else if (!strcmp(argv[0], "--listen-fd"))
            listener = inherited(argv[1]);
        else if (!strcmp(argv[0], "--listen"))
            named = (listener = listen_at(argv[1])) >= 0;
        else if (!strcmp(argv[0], "--keep") && kept_count < MAX_KEPT)
            kept[kept_count++] = inherited(argv[1]);
        else if (!strcmp(argv[0], "--linger"))
            linger = atof(argv[1]);
        else if (!strcmp(argv[0], "--key") && read_key(argv[1]))
            has_key = true;
        else
            return BAD_USAGE;
    }
    if (argc != 1 || (named && !has_key) || (next_fd < 0) == (listener < 0))
        return BAD_USAGE;
    harden();
    serve_until_the_end();
    if (is_set_up)
        end_all();
    return 0;
}
