/*
 * zubble-box: the one program that runs inside every sandbox.
 *
 *   zubble-box supervise --fd N TOKEN                          serve the worker on an inherited socket
 *   zubble-box supervise --listen-fd N --linger S TOKEN        serve the newest connection to an inherited one
 *   zubble-box supervise --listen PATH --key SHA256HEX --linger S TOKEN
 *                                                              serve the newest connection that knows the secret
 *                              ... --keep N ...              and hold these descriptors, which are locks, until the end
 *   zubble-box relay PATH                                      stdin and stdout to the socket at PATH
 *   zubble-box forward PORT PATH                               127.0.0.1:PORT to the socket at PATH
 *   zubble-box carry PORT                                      127.0.0.1:PORT as frames on stdin and stdout
 *   zubble-box enter [--uid N] [--cgroup DIR]... -- PROGRAM... join groups, give up root, start PROGRAM
 *
 * A PATH with '@' first is a name in the network namespace's own list: nobody takes it while the socket is open.
 *
 * A supervisor starts one command at a time, keeps the first and last 64 KiB of each of its outputs, enforces
 * its deadline, and ends everything it started: it is process 1 of a pid namespace (mode `namespace`) or the
 * sub-reaper of a process tree (mode `tree`). It reads, writes, lists, saves and restores files for the worker
 * with the rights of the sandbox. It ends everything when its line is lost (after `linger` seconds where
 * somebody may connect again) and at the end of its life. TOKEN only marks the process for the worker.
 *
 * Frames: length of the payload (4 bytes, big endian), kind (1), call id (4), payload. A payload is a list of
 * byte strings, each behind its length (4). A body follows its request as CHUNK frames and one END. An answer
 * is any number of CHUNKs, then OK with fields or FAILED with (os|value, errno, sentence). Numbers are decimal.
 *
 *   AUTH      the secret as the payload itself; the first frame where --key was given
 *   SETUP     mode life pids open_files file_bytes memory_bytes linger background oom port path (name folder)...
 *             once; again it only begins another life. A limit of 0 is no limit. `oom` is a descriptor, or paths
 *             with ':' between, of memory.events or memory.oom_control. `port` 0: no forwarder.
 *   EXEC      id timeout cwd argc argv... NAME=VALUE...: started unless the id is known; the answer is its result:
 *             exit|signal|timeout code seconds oom-kills, then of both streams: total head tail
 *   WAIT      id out err: the result of a known command, without so many bytes of the heads
 *   KILL      id: end that command, if it runs           FREEZE, THAW, PING: no fields
 *   LEAVE     no fields: end everything now, without waiting for another line
 *   READ      path max-bytes: the content                WRITE   path executable, and a body
 *   LIST      path max-entries skip: records of path, "kind mode size mtime-ns", target; skip leaves .zubble out
 *   SNAPSHOT  max-bytes: the work tree as such records, each file's content behind it
 *   RESTORE   a body of such records (kind m: the mode of a folder made before): the work tree becomes that
 *
 * A carrier's frames are about connections, by id in place of the call: OPENED, of 0 when it listens; CHUNK and END,
 * what its side of a connection says; ROOM (4 bytes), so many bytes of the other side were passed on; GONE, it is
 * broken off. A side has at most 64 KiB on the way that the other has not passed on. A worker says something every
 * minute, if only to 0, or counts as gone.
 *
 * Everything else in the sandbox is an enemy: the process is not dumpable, ignores every signal it can, holds no
 * descriptor a command inherits, follows no symbolic link and never waits for one peer only. The worker is trusted,
 * but no frame of it may crash a supervisor or make it allocate more than these constants say.
 */
#ifndef BOX_H
#define BOX_H

#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>

enum {
    HEADER_BYTES = 9,
    MAX_FRAME_BYTES = 4 * 1024 * 1024, /* above ARG_MAX of Linux, so every command that can start fits */
    CHUNK_BYTES = 256 * 1024,
    OUT_BYTES = CHUNK_BYTES + 64 * 1024, /* a chunk, or the result of a command */
    KEEP_BYTES = 64 * 1024,              /* kept of each end of each stream */
    MAX_ENTRIES = 200000,                /* of one snapshot */
    MAX_PATH_BYTES = 40 * 1024,          /* of a path below the work tree: MAX_DEPTH names and more */
    MAX_POLLED = 256,
    MAX_CONNECTIONS = 64, /* of a forwarder, each way */
};

enum kind {
    SETUP = 1, EXEC, KILL, FREEZE, THAW, PING, READ, WRITE, LIST, WAIT, SNAPSHOT, RESTORE, AUTH,
    LEAVE,
    CHUNK = 32, END = 33, OPENED, ROOM, GONE, OK = 64, FAILED = 65,
};

enum { DONE = 0, REFUSED = -1, ANSWERED = 1 }; /* what a request comes to */

enum exit_code { BAD_USAGE = 64, NO_SYSTEM = 70, NO_NAMESPACE = 71, NO_PROGRAM = 127 };

/* line.c: frames, and the answer that is being built */
struct fields {
    unsigned char *at, *end;
};
extern int line_fd;       /* -1 while nobody is connected */
extern bool line_lost;    /* reading and writing fail from here on until the next line */
bool receive(int *kind, uint32_t *call, struct fields *fields);
bool next_field(struct fields *fields, char **data, size_t *size);
char *text_field(struct fields *fields); /* NULL where there is none or NUL is in it */
double number_field(struct fields *fields);
void out_bytes(const void *data, size_t size);
void out_field(const void *data, size_t size);
void out_text(const char *text);
void out_size(uint32_t size);
size_t out_room(void);           /* bytes until a CHUNK is full */
unsigned char *out_place(void);  /* where the next byte goes */
void out_skip(size_t size);      /* so many were put there */
bool out_send(int kind, uint32_t call);
bool body_piece(uint32_t call, unsigned char **data, size_t *size, size_t most); /* size 0: the end */
bool body_exactly(uint32_t call, void *data, size_t size);
bool body_field(uint32_t call, char *text, size_t room);
int body_more(uint32_t call);
void body_begin(void);
void body_drain(uint32_t call);
int refuse_os(int error);
int refuse_value(const char *format, ...) __attribute__((format(printf, 1, 2)));
void send_refusal(uint32_t call);
void put_number(unsigned char *to, uint32_t number);
uint32_t get_number(const unsigned char *from);

/* supervise.c */
bool turn(short events); /* one poll over everything; whether the line is ready */
double now(void);        /* monotonic seconds */
int supervise(int argc, char **argv);

/* family.c: all processes of the sandbox at once */
enum reach { TREE, NAMESPACE };
extern enum reach reach;
void signal_all(int number);
void end_all(void);
void spare_present(void); /* `end_others` leaves these and what descends from them */
void end_others(void);
bool reap(bool block); /* collect who has ended, one at least if `block`; whether there are others */

/* command.c: the one command */
struct limits {
    unsigned long long pids, open_files, file_bytes, memory_bytes;
};
extern struct limits limits;
extern bool background;
extern int oom_fd;
void command_prepare(void);
bool command_uses(int fd);
int command_exec(uint32_t call, struct fields *fields);
int command_wait(uint32_t call, struct fields *fields);
int command_kill(struct fields *fields);
void command_freeze(void);
void command_thaw(void);
void command_ended(pid_t pid, int status);
bool command_over(void);
void command_finish(void);
void command_report(void);    /* send the result that a call waits for */
void command_unawaited(void); /* the line of that call is gone */
double command_deadline(void);
size_t command_polled(struct pollfd *polled);
void command_ready(const struct pollfd *polled);

/* tree.c: paths below the roots, by descriptor */
enum { NAME_BYTES = NAME_MAX + 1 };
#define PRIVATE ".zubble" /* ours, at the top of the work tree: neither saved nor removed */
typedef int visitor(void *with, int parent, const char *name, const char *path, const struct stat *info);
bool add_root(const char *name, const char *folder);
int work_folder(void);
int place(const char *path, bool make_folders, char *name, int *root);
int open_folder(const char *path);
int open_beneath(int parent, const char *name, int flags);
int open_regular(int parent, const char *name, struct stat *info);
int walk(int folder, bool skip_private, visitor *visit, void *with);
bool empty(int top);
const char *unguessable(void);

/* files.c */
int serve_read(uint32_t call, struct fields *fields);
int serve_write(uint32_t call, struct fields *fields);
int serve_list(uint32_t call, struct fields *fields);
int serve_snapshot(uint32_t call, struct fields *fields);
int serve_restore(uint32_t call);

/* pump.c: bytes between pairs of descriptors */
socklen_t unix_address(struct sockaddr_un *address, const char *path); /* 0: too long */
int listening(int port); /* on 127.0.0.1; -1: errno says why not */
bool forward_open(int port, const char *path);
size_t pumps_polled(struct pollfd *polled);
void pumps_ready(const struct pollfd *polled);
int connect_to(const char *path);
int relay(const char *path);
int forward(int port, const char *path);
bool write_all(int fd, const void *data, size_t size);

/* carry.c */
int carry(int port);

/* sha256.c */
enum { SHA256_BYTES = 32 };
void sha256(const void *data, size_t size, unsigned char digest[SHA256_BYTES]);

#endif
