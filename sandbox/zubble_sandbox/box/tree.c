/* Walking a tree that somebody hostile is changing: every component by descriptor, no link ever followed. */
#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    MAX_DEPTH = 128, /* folders below this are named but not entered; one descriptor is open for each level */
    MAX_FOLDER_ENTRIES = MAX_ENTRIES + 1, /* of a larger folder only so many are looked at; no snapshot takes them */
    MAX_ROOTS = 32,
    ROOT_NAME_BYTES = 256,
};

static const int FOLDER = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
static struct root {
    char name[ROOT_NAME_BYTES]; /* what a path begins with, without the first '/' */
    int fd;
} roots[MAX_ROOTS];
static int root_count;

/* The next component of a path, or false at its end; "." and doubled slashes are passed over. */
static bool next_part(const char **path, const char **part, size_t *size)
{
    do {
        *path += strspn(*path, "/");
        *part = *path;
        *size = strcspn(*path, "/");
        *path += *size;
    } while (*size == 1 && **part == '.');
    return *size > 0;
}

/* What is left of a path behind the parts of a root's name; NULL where it does not lie there. */
static const char *behind(const char *path, const char *name)
{
    const char *ours, *theirs;
    size_t our_size, their_size;
    while (next_part(&name, &ours, &our_size))
        if (!next_part(&path, &theirs, &their_size) || our_size != their_size || memcmp(ours, theirs, our_size))
            return NULL;
    return path;
}

/* The root that an absolute path leads to, the longest name first; -1 when there is none. */
static int find_root(const char **path)
{
    const struct root *found = NULL;
    for (int i = 0; i < root_count; i++)
        if (behind(*path, roots[i].name) && (!found || strlen(roots[i].name) > strlen(found->name)))
            found = &roots[i];
    if (!found)
        return -1;
    *path = behind(*path, found->name);
    return found->fd;
}

int work_folder(void)
{
    const char *path = "/work";
    return find_root(&path);
}

/* A descriptor of a folder; of one that has another name already, the same. */
static int open_root(const char *folder)
{
    struct stat one, other;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < root_count; i++)
        if (!fstat(fd, &one) && !fstat(roots[i].fd, &other) && one.st_dev == other.st_dev && one.st_ino == other.st_ino) {
            close(fd);
            return roots[i].fd;
        }
    return fd;
}

bool add_root(const char *name, const char *folder)
{
    if (root_count == MAX_ROOTS || strlen(name) >= ROOT_NAME_BYTES) {
        errno = ENAMETOOLONG;
        return false;
    }
    struct root *root = &roots[root_count];
    strcpy(root->name, name);
    root->fd = open_root(folder);
    root_count += root->fd >= 0;
    return root->fd >= 0;
}

static int no_link(int error, int parent, const char *name)
{
    struct stat info;
    if (error == ENOTDIR && !fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) && S_ISLNK(info.st_mode))
        return ELOOP;
    return error;
}

static int closed(int fd, int error)
{
    close(fd);
    errno = error;
    return -1;
}

static bool leads_up(const char *path)
{
    const char *part;
    for (size_t size; next_part(&path, &part, &size);)
        if (size == 2 && part[0] == '.' && part[1] == '.')
            return true;
    return false;
}

/* The open parent folder of a path, and the name in it ("." for a root itself); -1 and errno. */
int place(const char *path, bool make_folders, char *name, int *root)
{
    const char *part;
    size_t size, next_size;
    bool up = leads_up(path);
    *root = *path == '/' ? find_root(&path) : work_folder();
    if (*root < 0 || up) {
        errno = EACCES;
        return -1;
    }
    bool more = next_part(&path, &part, &size);
    int fd = openat(*root, ".", FOLDER);
    if (fd < 0)
        return -1;
    strcpy(name, ".");
    while (more) {
        if (size >= NAME_BYTES)
            return closed(fd, ENAMETOOLONG);
        memcpy(name, part, size);
        name[size] = 0;
        more = next_part(&path, &part, &next_size);
        size = next_size;
        if (!more)
            break;
        if (make_folders && mkdirat(fd, name, 0755) && errno != EEXIST)
            return closed(fd, errno);
        int inner = openat(fd, name, FOLDER);
        if (inner < 0)
            return closed(fd, no_link(errno, fd, name));
        close(fd);
        fd = inner;
    }
    return fd;
}

/* Open without following a link and without blocking on a FIFO; -1 and errno. */
int open_beneath(int parent, const char *name, int flags)
{
    int fd = openat(parent, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        errno = no_link(errno, parent, name);
    return fd;
}

int open_regular(int parent, const char *name, struct stat *info)
{
    int fd = open_beneath(parent, name, O_RDONLY);
    if (fd < 0)
        return -1;
    if (fstat(fd, info))
        return closed(fd, errno);
    return S_ISREG(info->st_mode) ? fd : closed(fd, S_ISDIR(info->st_mode) ? EISDIR : EINVAL);
}

int open_folder(const char *path)
{
    char name[NAME_BYTES];
    int root, parent = place(path, false, name, &root);
    if (parent < 0)
        return -1;
    int fd = open_beneath(parent, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return closed(parent, errno);
    close(parent);
    return fd;
}

struct names {
    char **all;
    size_t count;
};

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->all[i]);
    free(names->all);
}

static struct names read_names(int folder)
{
    struct names names = {0};
    size_t room = 0;
    int copy = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    DIR *entries = copy < 0 ? NULL : fdopendir(copy);
    if (!entries) {
        if (copy >= 0)
            close(copy);
        return names;
    }
    rewinddir(entries); /* the copy shares its position */
    for (struct dirent *entry; names.count < MAX_FOLDER_ENTRIES && (entry = readdir(entries));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (names.count == room) {
            char **grown = realloc(names.all, (room = room ? 2 * room : 64) * sizeof *grown);
            if (!grown)
                break;
            names.all = grown;
        }
        if (!(names.all[names.count] = strdup(entry->d_name)))
            break;
        names.count++;
    }
    closedir(entries);
    if (names.count)
        qsort(names.all, names.count, sizeof *names.all, by_bytes);
    return names;
}

struct walking {
    char path[MAX_PATH_BYTES];
    visitor *visit;
    void *with;
    bool skip_private;
};

static int walk_folder(struct walking *walking, int folder, size_t prefix, int depth)
{
    struct names names = read_names(folder);
    struct stat info;
    int stopped = 0;
    for (size_t i = 0; i < names.count && !stopped; i++) {
        const char *name = names.all[i];
        size_t end = prefix + strlen(name);
        if (depth == 0 && walking->skip_private && !strcmp(name, PRIVATE))
            continue;
        if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW))
            continue;
        strcpy(walking->path + prefix, name);
        stopped = walking->visit(walking->with, folder, name, walking->path, &info);
        if (stopped || !S_ISDIR(info.st_mode) || depth >= MAX_DEPTH)
            continue;
        int inner = open_beneath(folder, name, O_RDONLY | O_DIRECTORY);
        if (inner < 0)
            continue;
        strcpy(walking->path + end, "/");
        stopped = walk_folder(walking, inner, end + 1, depth + 1);
        close(inner);
    }
    free_names(&names);
    return stopped;
}

/*
 * Visit everything below a folder, each folder before what is in it, the names of a folder in the order of their
 * bytes, until a visit returns something else than 0; that is returned. Folders that cannot be entered (mode 000,
 * gone, swapped for a link) are visited only.
 */
int walk(int folder, bool skip_private, visitor *visit, void *with)
{
    static struct walking walking;
    walking.visit = visit;
    walking.with = with;
    walking.skip_private = skip_private;
    return walk_folder(&walking, folder, 0, 0);
}

bool write_all(int fd, const void *data, size_t size)
{
    const char *from = data;
    while (size > 0) {
        ssize_t put = write(fd, from, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        from += put;
        size -= (size_t)put;
    }
    return true;
}

static int open_whatever_its_mode(int parent, const char *name)
{
    char link[32];
    int handle = openat(parent, name, FOLDER);
    if (handle < 0)
        return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    int fd = chmod(link, 0700) ? -1 : open(link, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(handle);
    return fd;
}

static bool is_folder(int parent, const char *name)
{
    struct stat info;
    return !fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) && S_ISDIR(info.st_mode);
}

/* A name for something of ours in a folder of theirs. */
const char *unguessable(void)
{
    static char name[48];
    unsigned long long number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        abort();
    snprintf(name, sizeof name, ".zubble-%016llx", number);
    return name;
}

/* Remove the files of a folder and move its folders to the top, under names that nothing has there. */
static bool lift(int top, int folder)
{
    static unsigned long counter;
    struct names names = read_names(folder);
    bool done = true;
    for (size_t i = 0; i < names.count && done; i++) {
        if (!is_folder(folder, names.all[i])) {
            done = !unlinkat(folder, names.all[i], 0);
            continue;
        }
        char aside[64];
        snprintf(aside, sizeof aside, "%s-%lu", unguessable(), counter++);
        int fd = open_whatever_its_mode(folder, names.all[i]);
        done = fd >= 0 && !renameat(folder, names.all[i], top, aside);
        if (fd >= 0)
            close(fd);
    }
    free_names(&names);
    return done;
}

/* Remove everything but .zubble, however deep and whatever its modes: depth costs neither descriptors nor stack. */
bool empty(int top)
{
    bool done = true, more = true;
    while (more && done) {
        struct names names = read_names(top);
        more = false;
        for (size_t i = 0; i < names.count && done; i++) {
            if (!strcmp(names.all[i], PRIVATE))
                continue;
            more = true;
            if (!is_folder(top, names.all[i])) {
                done = !unlinkat(top, names.all[i], 0);
                continue;
            }
            int inner = open_whatever_its_mode(top, names.all[i]);
            done = inner >= 0 && lift(top, inner);
            if (inner >= 0)
                close(inner);
            done = done && !unlinkat(top, names.all[i], AT_REMOVEDIR);
        }
        free_names(&names);
    }
    return done;
}
