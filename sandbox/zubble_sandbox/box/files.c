/* Reading, writing, listing, saving and restoring for the worker, inside the sandbox's own rights. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RECORD_BYTES = MAX_PATH_BYTES + PATH_MAX + 128, /* at most, without content */
    LEAST_RECORD_BYTES = 72, /* without its texts; a tar needs more for every entry */
};

static const long long NANOSECONDS = 1000000000, MAX_SECONDS = 9000000000; /* some file systems know more */

/* Read up to `most` bytes into the chunk that is being made, and send it when it is full. */
static ssize_t copy_out(int fd, uint32_t call, size_t most)
{
    if (out_room() == 0 && !out_send(CHUNK, call))
        return -1;
    ssize_t got = read(fd, out_place(), out_room() < most ? out_room() : most);
    if (got > 0)
        out_skip((size_t)got);
    return got;
}

int serve_read(uint32_t call, struct fields *fields)
{
    char name[NAME_BYTES], *path = text_field(fields);
    size_t most = (size_t)number_field(fields), total = 0;
    struct stat info;
    int root, parent = path ? place(path, false, name, &root) : -1;
    if (parent < 0)
        return refuse_os(path ? errno : EACCES);
    int fd = open_regular(parent, name, &info), error = errno;
    close(parent);
    if (fd < 0)
        return refuse_os(error);
    ssize_t got;
    while ((got = copy_out(fd, call, most - total + 1)) > 0 && (total += (size_t)got) <= most)
        continue;
    error = errno;
    close(fd);
    if (got < 0)
        return refuse_os(error);
    if (total > most)
        return refuse_value("the file is larger than %zu bytes", most);
    return out_send(CHUNK, call) ? DONE : REFUSED;
}

static int special(int parent, const char *name)
{
    struct stat info;
    if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : errno;
    if (S_ISREG(info.st_mode))
        return 0;
    return S_ISLNK(info.st_mode) ? ELOOP : S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
}

static bool copy_in(int fd, uint32_t call, size_t size)
{
    unsigned char *piece;
    size_t got = 1;
    for (; size > 0 && got > 0; size -= got) {
        if (!body_piece(call, &piece, &got, size)) {
            errno = EPIPE;
            return false;
        }
        if (!write_all(fd, piece, got))
            return false;
    }
    return true;
}

/* Through a new file beside the old one, so that a full disk leaves the old one as it was. */
static int replace(uint32_t call, int parent, const char *name, mode_t mode)
{
    int error = special(parent, name);
    if (error)
        return error;
    const char *temporary = unguessable();
    int fd = open_beneath(parent, temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return errno;
    bool done = copy_in(fd, call, SIZE_MAX) && !fchmod(fd, mode) && !renameat(parent, temporary, parent, name);
    error = done ? 0 : errno;
    close(fd);
    if (error)
        unlinkat(parent, temporary, 0);
    return error;
}

int serve_write(uint32_t call, struct fields *fields)
{
    char name[NAME_BYTES], *path = text_field(fields);
    bool executable = number_field(fields) != 0;
    int root, parent = path ? place(path, true, name, &root) : -1;
    if (parent < 0)
        return refuse_os(path ? errno : EACCES);
    int error = root == work_folder() ? replace(call, parent, name, executable ? 0755 : 0644) : EACCES;
    close(parent);
    return error ? refuse_os(error) : DONE;
}

static char kind_of(mode_t mode)
{
    return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : 'o';
}

/* One record; a folder's size and time say nothing about the tree and are 0. */
static void put_record(int parent, const char *name, const char *path, const struct stat *info)
{
    char text[96], target[PATH_MAX];
    bool plain = !S_ISDIR(info->st_mode);
    long long seconds = info->st_mtim.tv_sec;
    seconds = seconds > MAX_SECONDS ? MAX_SECONDS : seconds < -MAX_SECONDS ? -MAX_SECONDS : seconds;
    long long time = seconds * NANOSECONDS + info->st_mtim.tv_nsec;
    snprintf(text, sizeof text, "%c %o %lld %lld", kind_of(info->st_mode), info->st_mode & 07777,
             plain ? (long long)info->st_size : 0, plain ? time : 0);
    ssize_t size = S_ISLNK(info->st_mode) ? readlinkat(parent, name, target, sizeof target) : 0;
    out_text(path);
    out_text(text);
    out_field(target, size > 0 ? (size_t)size : 0);
}

struct listing {
    uint32_t call;
    size_t entries;
};

static int list_one(void *with, int parent, const char *name, const char *path, const struct stat *info)
{
    struct listing *listing = with;
    if (listing->entries-- == 0)
        return 1;
    if (out_room() < RECORD_BYTES && !out_send(CHUNK, listing->call))
        return 1;
    put_record(parent, name, path, info);
    return 0;
}

int serve_list(uint32_t call, struct fields *fields)
{
    char *path = text_field(fields);
    struct listing listing = {call, (size_t)number_field(fields)};
    bool skip = number_field(fields) != 0;
    int folder = path ? open_folder(path) : -1;
    if (folder < 0)
        return refuse_os(path ? errno : EACCES);
    walk(folder, skip, list_one, &listing);
    close(folder);
    return out_send(CHUNK, call) ? DONE : REFUSED;
}

struct saving {
    uint32_t call;
    size_t entries, room;
};

static int save_content(struct saving *saving, int fd, size_t left)
{
    ssize_t got = 1;
    while (left > 0 && got > 0) {
        got = copy_out(fd, saving->call, left);
        left -= got > 0 ? (size_t)got : 0;
    }
    while (left > 0) { /* it has become shorter meanwhile */
        if (out_room() == 0 && !out_send(CHUNK, saving->call))
            return 1;
        size_t gap = left < out_room() ? left : out_room();
        memset(out_place(), 0, gap);
        out_skip(gap);
        left -= gap;
    }
    return 0;
}

/* What is neither file, folder nor link is left out, and so is a file that its owner cannot read. */
static int save_one(void *with, int parent, const char *name, const char *path, const struct stat *seen)
{
    struct saving *saving = with;
    struct stat info = *seen;
    int fd = -1, stopped = 0;
    if (kind_of(info.st_mode) == 'o' || (S_ISREG(info.st_mode) && (fd = open_regular(parent, name, &info)) < 0))
        return 0;
    size_t content = fd < 0 ? 0 : (size_t)info.st_size, target = S_ISLNK(info.st_mode) ? (size_t)info.st_size : 0;
    size_t size = strlen(path) + target + content + LEAST_RECORD_BYTES;
    if (saving->entries-- == 0)
        stopped = refuse_value("the work tree holds more than %d entries", MAX_ENTRIES);
    else if (size > saving->room)
        stopped = refuse_value("the work tree is larger than the snapshot may be");
    else if (out_room() < RECORD_BYTES && !out_send(CHUNK, saving->call))
        stopped = REFUSED;
    if (!stopped) {
        saving->room -= size;
        put_record(parent, name, path, &info);
        stopped = fd < 0 ? 0 : save_content(saving, fd, content);
    }
    if (fd >= 0)
        close(fd);
    return stopped;
}

int serve_snapshot(uint32_t call, struct fields *fields)
{
    struct saving saving = {call, MAX_ENTRIES, (size_t)number_field(fields)};
    if (walk(work_folder(), true, save_one, &saving))
        return REFUSED;
    return out_send(CHUNK, call) ? DONE : REFUSED;
}

struct record {
    char path[MAX_PATH_BYTES], target[PATH_MAX], kind;
    unsigned mode;
    long long size, time;
};

static int make_file(uint32_t call, int parent, const char *name, const struct record *record)
{
    struct timespec times[2] = {{record->time / NANOSECONDS, record->time % NANOSECONDS}};
    times[1] = times[0];
    int fd = open_beneath(parent, name, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return errno;
    bool done = copy_in(fd, call, (size_t)record->size) && !fchmod(fd, record->mode & 0777) && !futimens(fd, times);
    int error = done ? 0 : errno;
    close(fd);
    return error;
}

static int set_mode(int parent, const char *name, unsigned mode)
{
    int fd = open_beneath(parent, name, O_RDONLY | O_DIRECTORY);
    int error = fd < 0 || fchmod(fd, mode & 0777) ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

static int make(uint32_t call, int parent, const char *name, const struct record *record)
{
    switch (record->kind) {
    case 'd': return mkdirat(parent, name, 0700) ? errno : 0;
    case 'l': return symlinkat(record->target, parent, name) ? errno : 0;
    case 'f': return make_file(call, parent, name, record);
    case 'm': return set_mode(parent, name, record->mode);
    default: return EINVAL;
    }
}

/* 1: there is one; DONE: the body is at its end; REFUSED. */
static int next_record(uint32_t call, struct record *record)
{
    char text[96];
    int more = body_more(call);
    if (more <= 0)
        return more;
    if (body_field(call, record->path, sizeof record->path) && body_field(call, text, sizeof text)
        && body_field(call, record->target, sizeof record->target)
        && sscanf(text, "%c %o %lld %lld", &record->kind, &record->mode, &record->size, &record->time) == 4
        && record->path[0] != '/' && record->size >= 0 && record->time >= 0)
        return 1;
    return refuse_value("the snapshot ends too early or holds what is none");
}

static int restore(uint32_t call)
{
    static struct record record;
    char name[NAME_BYTES];
    int got, root;
    while ((got = next_record(call, &record)) > 0) {
        int parent = place(record.path, record.kind != 'm', name, &root);
        if (parent < 0)
            return refuse_os(errno);
        int error = make(call, parent, name, &record);
        close(parent);
        if (error)
            return refuse_os(error);
    }
    return got;
}

int serve_restore(uint32_t call)
{
    if (!empty(work_folder()))
        return refuse_os(errno);
    int result = restore(call);
    if (result != DONE)
        empty(work_folder());
    return result;
}
