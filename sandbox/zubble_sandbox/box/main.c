/* The modes of the program, and the smallest of them. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int complain(const char *what, const char *of)
{
    fprintf(stderr, "zubble-box: cannot %s %s: %s\n", what, of, strerror(errno));
    return NO_SYSTEM;
}

static bool join_cgroup(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cgroup.procs", folder);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool joined = fd >= 0 && write(fd, "0", 1) == 1;
    if (fd >= 0)
        close(fd);
    return joined;
}

/* Give up root for good; the inheritable set is what a change of the user leaves. */
static bool become(uid_t uid)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    return !setgroups(0, NULL) && !setresgid(uid, uid, uid) && !setresuid(uid, uid, uid)
           && !syscall(SYS_capset, &header, none);
}

static int enter(int argc, char **argv)
{
    uid_t uid = 0;
    for (; argc > 1 && strcmp(argv[0], "--"); argc -= 2, argv += 2) {
        if (!strcmp(argv[0], "--uid"))
            uid = (uid_t)strtoul(argv[1], NULL, 10);
        else if (strcmp(argv[0], "--cgroup"))
            return BAD_USAGE;
        else if (!join_cgroup(argv[1]))
            return complain("join", argv[1]);
    }
    if (argc < 2)
        return BAD_USAGE;
    if (uid && !become(uid))
        return complain("become", "another user");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return complain("give up", "privileges");
    execv(argv[1], argv + 1);
    complain("start", argv[1]);
    return NO_PROGRAM;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "supervise"))
        return supervise(argc - 2, argv + 2);
    if (!strcmp(mode, "enter"))
        return enter(argc - 2, argv + 2);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(mode, "relay") && argc == 3)
        return relay(argv[2]);
    if (!strcmp(mode, "forward") && argc == 4)
        return forward(atoi(argv[2]), argv[3]);
    if (!strcmp(mode, "carry") && argc == 3)
        return carry(atoi(argv[2]));
    fputs("usage: zubble-box supervise|relay|forward|carry|enter ... (see box.h)\n", stderr);
    return BAD_USAGE;
}
