/* One command at a time: a fresh session, bounded output, and nothing of it left behind unless that was agreed. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ID_BYTES = 64,
    MAX_DRAINED = 32,  /* pipes of background processes that are still read */
    LAST_READS = 64,   /* of a pipe after the end; more than it can hold */
    LAST_SIGNAL = 31,  /* real-time signals are never ignored */
    NOT_FOUND = 127,
    NOT_STARTED = 126,
};

static const double GRACE_SECONDS = 0.1; /* how long pipes may stay open after the command itself has ended */

struct stream {
    int fd; /* -1 once it has ended */
    unsigned long long total;
    unsigned char head[KEEP_BYTES], tail[KEEP_BYTES]; /* the tail is a ring */
};

static struct {
    char id[ID_BYTES];
    bool running, exited, awaited;
    pid_t pid;
    int status;
    uint32_t call;
    unsigned long long known[2]; /* bytes of the heads that the worker has */
    double started, deadline, frozen_at, seconds;
    const char *kind;
    int code;
    long long ooms;
} command;
static struct stream streams[2];
static int drained[MAX_DRAINED], drained_count, null_fd = -1, adjust_fd = -1;
static char own_score[16];

struct limits limits;
bool background;
int oom_fd = -1;

/* Before the process becomes undumpable: what is in /proc/self cannot be opened for writing afterwards. */
void command_prepare(void)
{
    adjust_fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (adjust_fd >= 0 && read(adjust_fd, own_score, sizeof own_score - 1) <= 0)
        close(adjust_fd), adjust_fd = -1;
    null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    streams[0].fd = streams[1].fd = -1;
}

bool command_uses(int fd)
{
    return fd == adjust_fd || fd == null_fd;
}

static long long oom_kills(void)
{
    char text[4096], *line;
    ssize_t size = oom_fd < 0 ? 0 : pread(oom_fd, text, sizeof text - 1, 0);
    text[size > 0 ? size : 0] = 0;
    return (line = strstr(text, "oom_kill ")) ? atoll(line + strlen("oom_kill ")) : 0;
}

static void keep(struct stream *stream, const unsigned char *data, size_t size)
{
    if (stream->total < KEEP_BYTES) {
        size_t room = KEEP_BYTES - (size_t)stream->total, part = size < room ? size : room;
        memcpy(stream->head + stream->total, data, part);
        stream->total += part;
        data += part;
        size -= part;
    }
    while (size > 0) {
        size_t at = stream->total % KEEP_BYTES, part = size < KEEP_BYTES - at ? size : KEEP_BYTES - at;
        memcpy(stream->tail + at, data, part);
        stream->total += part;
        data += part;
        size -= part;
    }
}

/* Read once; false when nothing was there. */
static bool pull(struct stream *stream)
{
    static unsigned char data[KEEP_BYTES];
    if (stream->fd < 0)
        return false;
    ssize_t got = read(stream->fd, data, sizeof data);
    if (got > 0)
        keep(stream, data, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(stream->fd);
        stream->fd = -1;
    }
    return got > 0;
}

static void drain(int index)
{
    char data[4096];
    ssize_t got = read(drained[index], data, sizeof data);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    close(drained[index]);
    drained[index] = drained[--drained_count];
}

static void drain_from_now_on(int fd)
{
    if (drained_count == MAX_DRAINED) { /* the oldest one's writers hear of it */
        close(drained[0]);
        memmove(drained, drained + 1, (size_t)--drained_count * sizeof *drained);
    }
    drained[drained_count++] = fd;
}

static void limit(int what, unsigned long long value)
{
    struct rlimit now;
    if (value == 0 || getrlimit(what, &now))
        return;
    now.rlim_cur = now.rlim_max = value < now.rlim_max ? value : now.rlim_max;
    setrlimit(what, &now);
}

/* As a shell would: every folder of PATH, and "forbidden" only when no other has the program. */
static int start_program(char **argv, char **envp)
{
    char path[PATH_MAX];
    const char *search = "";
    int error = ENOENT;
    if (strchr(argv[0], '/')) {
        execve(argv[0], argv, envp);
        return errno;
    }
    for (char **variable = envp; *variable; variable++)
        if (!strncmp(*variable, "PATH=", 5))
            search = *variable + 5;
    for (bool more = true; more; search++) {
        size_t size = strcspn(search, ":");
        more = search[size] == ':';
        if (*argv[0] && snprintf(path, sizeof path, "%.*s/%s", (int)size, search, argv[0]) < (int)sizeof path) {
            execve(path, argv, envp);
            if (errno != ENOENT && errno != ENOTDIR)
                error = errno;
        }
        search += size;
    }
    return error;
}

/* Runs in the memory of its parent until the program starts; what went wrong is left in `error`. */
static void child(int folder, const int writes[2], char **argv, char **envp, volatile int *error)
{
    sigset_t none;
    sigemptyset(&none);
    setsid();
    for (int number = 1; number <= LAST_SIGNAL; number++)
        signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    limit(RLIMIT_NOFILE, limits.open_files);
    limit(RLIMIT_NPROC, limits.pids);
    limit(RLIMIT_FSIZE, limits.file_bytes);
    limit(RLIMIT_DATA, limits.memory_bytes);
    if (dup2(null_fd, 0) < 0 || dup2(writes[0], 1) < 0 || dup2(writes[1], 2) < 0 || fchdir(folder))
        *error = errno;
    else
        *error = start_program(argv, envp);
    _exit(NOT_FOUND);
}

/* Commands are the first to go when memory is short; a child inherits this. */
static void adjust_oom_score(const char *text)
{
    if (adjust_fd >= 0 && pwrite(adjust_fd, text, strlen(text), 0) < 0)
        close(adjust_fd), adjust_fd = -1;
}

static int spawn(int folder, char **argv, char **envp)
{
    int out[2], err[2];
    volatile int error = 0;
    if (pipe2(out, O_CLOEXEC))
        return errno;
    if (pipe2(err, O_CLOEXEC)) {
        error = errno;
        close(out[0]), close(out[1]);
        return error;
    }
    int writes[2] = {out[1], err[1]};
    adjust_oom_score("1000");
    pid_t pid = vfork();
    if (pid == 0)
        child(folder, writes, argv, envp, &error);
    if (pid < 0)
        error = errno;
    adjust_oom_score(own_score);
    close(out[1]), close(err[1]);
    if (error) {
        close(out[0]), close(err[0]);
        if (pid > 0)
            waitpid(pid, NULL, 0);
        return error;
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    streams[0].fd = out[0];
    streams[1].fd = err[0];
    command.pid = pid;
    return 0;
}

static void send_result(void)
{
    char code[24], seconds[32], ooms[24], total[24];
    snprintf(code, sizeof code, "%d", command.code);
    snprintf(seconds, sizeof seconds, "%.6f", command.seconds);
    snprintf(ooms, sizeof ooms, "%lld", command.ooms);
    out_text(command.kind), out_text(code), out_text(seconds), out_text(ooms);
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &streams[i];
        size_t head = stream->total < KEEP_BYTES ? (size_t)stream->total : KEEP_BYTES;
        size_t known = command.known[i] < head ? (size_t)command.known[i] : head;
        unsigned long long rest = stream->total - head;
        size_t tail = rest < KEEP_BYTES ? (size_t)rest : KEEP_BYTES, at = stream->total % KEEP_BYTES;
        snprintf(total, sizeof total, "%llu", stream->total);
        out_text(total);
        out_field(stream->head + known, head - known);
        out_size((uint32_t)tail);
        if (rest > KEEP_BYTES)
            out_bytes(stream->tail + at, KEEP_BYTES - at);
        out_bytes(stream->tail, rest > KEEP_BYTES ? at : tail);
    }
    out_send(OK, command.call);
}

/* The result of a command that could not be started, as a shell would report it. */
static void not_started(const char *what, const char *of, int error)
{
    struct stream *err = &streams[1];
    int size = snprintf((char *)err->head, KEEP_BYTES, "zubble: cannot %s '%.4000s': %s\n", what, of, strerror(error));
    err->total = (unsigned long long)size;
    command.code = error == ENOENT && !strcmp(what, "start") ? NOT_FOUND : NOT_STARTED;
    command.kind = "exit";
}

static void await(uint32_t call, double known_out, double known_err)
{
    command.call = call;
    command.known[0] = (unsigned long long)known_out;
    command.known[1] = (unsigned long long)known_err;
    command.awaited = true;
    command_report();
}

void command_report(void)
{
    if (command.awaited && !command.running) {
        command.awaited = false;
        send_result();
    }
}

void command_unawaited(void)
{
    command.awaited = false;
}

static void start(const char *cwd, char **argv, char **envp)
{
    int folder = open_folder(cwd), error = folder < 0 ? errno : 0;
    if (error) {
        not_started("run in", cwd, error);
        return;
    }
    if (background)
        spare_present();
    command.ooms = oom_kills();
    if ((error = spawn(folder, argv, envp)))
        not_started("start", argv[0], error);
    else
        command.running = true;
    close(folder);
}

/* The arguments, NULL, the environment, NULL: all of them where they lie in the request. */
static char **texts_of(struct fields *fields, size_t count)
{
    size_t room = (size_t)(fields->end - fields->at) / 4 + 3, used = 0;
    char **texts = count > 0 && count < room ? calloc(room, sizeof *texts) : NULL;
    while (texts && fields->at < fields->end) {
        if (!(texts[used++] = text_field(fields)))
            return free(texts), NULL;
        used += used == count;
    }
    return used < count ? free(texts), NULL : texts;
}

int command_exec(uint32_t call, struct fields *fields)
{
    char *id = text_field(fields);
    if (!id || !*id || strlen(id) >= ID_BYTES)
        return refuse_value("a command needs an id of at most %d bytes", ID_BYTES - 1);
    if (!strcmp(id, command.id)) {
        await(call, 0, 0);
        return ANSWERED;
    }
    if (command.running)
        return refuse_value("a command is running already");
    double timeout = number_field(fields);
    char *cwd = text_field(fields);
    size_t count = (size_t)number_field(fields);
    char **argv = cwd ? texts_of(fields, count) : NULL;
    if (!argv)
        return refuse_value("a command needs a folder and arguments without NUL");
    memset(&command, 0, sizeof command);
    strcpy(command.id, id);
    command.started = now();
    command.deadline = command.started + timeout;
    streams[0].total = streams[1].total = 0;
    start(cwd, argv, argv + count + 1);
    free(argv);
    await(call, 0, 0);
    return ANSWERED;
}

int command_wait(uint32_t call, struct fields *fields)
{
    const char *id = text_field(fields);
    double out = number_field(fields), err = number_field(fields);
    if (!id || !*id || strcmp(id, command.id))
        return refuse_value("there is no such command");
    await(call, out, err);
    return ANSWERED;
}

int command_kill(struct fields *fields)
{
    const char *id = text_field(fields);
    if (id && command.running && (!*id || !strcmp(id, command.id)))
        command_finish();
    return DONE;
}

void command_ended(pid_t pid, int status)
{
    if (!command.running || command.exited || pid != command.pid)
        return;
    command.exited = true;
    command.status = status;
    if (command.deadline > now() + GRACE_SECONDS)
        command.deadline = now() + GRACE_SECONDS;
}

bool command_over(void)
{
    bool quiet = command.exited && streams[0].fd < 0 && streams[1].fd < 0;
    return command.running && (quiet || now() >= command_deadline());
}

double command_deadline(void)
{
    return command.running && !command.frozen_at ? command.deadline : INFINITY;
}

void command_freeze(void)
{
    signal_all(SIGSTOP);
    if (command.running && !command.frozen_at)
        command.frozen_at = now();
}

/* The time it was frozen is not counted against the command. */
void command_thaw(void)
{
    if (command.frozen_at)
        command.deadline += now() - command.frozen_at;
    command.frozen_at = 0;
    signal_all(SIGCONT);
}

static void conclude(bool timed_out)
{
    command.seconds = now() - command.started;
    command.ooms = oom_kills() - command.ooms;
    command.kind = timed_out ? "timeout" : WIFSIGNALED(command.status) ? "signal" : "exit";
    command.code = timed_out ? 0 : WIFSIGNALED(command.status) ? WTERMSIG(command.status) : WEXITSTATUS(command.status);
}

/* End what is left of the command, and take in what it wrote. */
void command_finish(void)
{
    bool timed_out = !command.exited;
    if (!background)
        end_all();
    else if (timed_out)
        end_others();
    command.running = false;
    for (int i = 0; i < 2; i++) {
        for (int reads = 0; reads < LAST_READS && pull(&streams[i]); reads++)
            continue;
        if (streams[i].fd >= 0 && background)
            drain_from_now_on(streams[i].fd);
        else if (streams[i].fd >= 0)
            close(streams[i].fd);
        streams[i].fd = -1;
    }
    conclude(timed_out);
}

size_t command_polled(struct pollfd *polled)
{
    for (int i = 0; i < 2; i++)
        polled[i] = (struct pollfd){streams[i].fd, POLLIN, 0};
    for (int i = 0; i < drained_count; i++)
        polled[2 + i] = (struct pollfd){drained[i], POLLIN, 0};
    return 2 + (size_t)drained_count;
}

void command_ready(const struct pollfd *polled)
{
    for (int i = drained_count - 1; i >= 0; i--)
        if (polled[2 + i].revents)
            drain(i);
    for (int i = 0; i < 2; i++)
        if (polled[i].revents)
            pull(&streams[i]);
}
