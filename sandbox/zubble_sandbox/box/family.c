/* All processes of the sandbox at once: stopping, continuing, ending them. */
#include "box.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ANCESTORS = 4096, END_TRIES = 2000, END_PAUSE_NANOSECONDS = 1000000 };

struct process {
    pid_t pid, parent;
    unsigned long long started;
};
struct census {
    struct process *all;
    size_t count, room;
};

enum reach reach = TREE; /* until a setup says otherwise */
static struct census spared;

static bool look_at(pid_t pid, struct process *found)
{
    char path[64], text[1024], *rest, state;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    text[size > 0 ? size : 0] = 0;
    found->pid = pid;
    return (rest = strrchr(text, ')')) != NULL
           && sscanf(rest, ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                     &state, &found->parent, &found->started) == 3
           && state != 'Z' && state != 'X';
}

static int by_pid(const void *a, const void *b)
{
    const struct process *one = a, *two = b;
    return (one->pid > two->pid) - (one->pid < two->pid);
}

static const struct process *find(const struct census *census, pid_t pid)
{
    struct process key = {.pid = pid};
    return census->count ? bsearch(&key, census->all, census->count, sizeof key, by_pid) : NULL;
}

static bool knows(const struct census *census, const struct process *process)
{
    const struct process *known = find(census, process->pid);
    return known && known->started == process->started;
}

static void take(struct census *census)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    struct process found;
    census->count = 0;
    while (folder && (entry = readdir(folder))) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !look_at(atoi(entry->d_name), &found))
            continue;
        if (census->count == census->room) {
            size_t room = census->room ? 2 * census->room : 256;
            struct process *grown = realloc(census->all, room * sizeof *grown);
            if (!grown)
                break;
            census->all = grown;
            census->room = room;
        }
        census->all[census->count++] = found;
    }
    if (folder)
        closedir(folder);
    if (census->count)
        qsort(census->all, census->count, sizeof *census->all, by_pid);
}

/* Whether a process is one of the sandbox, and neither spared nor a descendant of one that is. */
static bool meant(const struct census *census, const struct process *process, bool sparing)
{
    pid_t self = getpid();
    if (process->pid == self)
        return false;
    for (int i = 0; process && i < MAX_ANCESTORS; i++) {
        if (sparing && knows(&spared, process))
            return false;
        if (process->parent == self)
            return true;
        process = find(census, process->parent);
    }
    return reach == NAMESPACE;
}

/* Stop everybody first, so that none forks away while the others are signalled; how many there were. */
static size_t signal_each(int number, bool sparing)
{
    static struct census known, next;
    size_t met = 0, added;
    known.count = 0;
    do {
        take(&next);
        added = 0;
        for (size_t i = 0; i < next.count; i++) {
            if (knows(&known, &next.all[i]) || !meant(&next, &next.all[i], sparing))
                continue;
            kill(next.all[i].pid, number == SIGCONT ? SIGCONT : SIGSTOP);
            added++;
        }
        met += added;
        struct census swap = known;
        known = next;
        next = swap;
    } while (added);
    for (size_t i = 0; i < known.count && number != SIGCONT && number != SIGSTOP; i++)
        if (meant(&known, &known.all[i], sparing))
            kill(known.all[i].pid, number);
    return met;
}

void signal_all(int number)
{
    if (reach == NAMESPACE && getpid() == 1)
        kill(-1, number); /* one call reaches every other process, also one that is just being forked */
    else
        signal_each(number, false);
}

bool reap(bool block)
{
    int status, options = block ? 0 : WNOHANG;
    pid_t pid;
    while ((pid = waitpid(-1, &status, options)) > 0 || (pid < 0 && errno == EINTR)) {
        if (pid > 0) {
            command_ended(pid, status);
            options = WNOHANG;
        }
    }
    return pid == 0;
}

void end_all(void)
{
    while (reap(false)) {
        signal_all(SIGKILL);
        reap(true);
    }
}

void spare_present(void)
{
    take(&spared);
}

void end_others(void)
{
    struct timespec pause = {.tv_nsec = END_PAUSE_NANOSECONDS};
    for (int i = 0; i < END_TRIES && signal_each(SIGKILL, true); i++) {
        reap(false);
        nanosleep(&pause, NULL);
    }
    reap(false);
}
