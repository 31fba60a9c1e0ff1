/* Preloaded into a process, makes a folder read-only from a moment on: once $READ_ONLY_SINCE exists, what would change
   $READ_ONLY_FOLDER fails with EROFS, writing to files that are open already too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int refused(int folder, const char *path) {
  const char *prefix = getenv("READ_ONLY_FOLDER"), *since = getenv("READ_ONLY_SINCE");
  char whole[PATH_MAX], link[64];
  if (!prefix || !since || access(since, F_OK)) return 0;
  if (!path || (path[0] != '/' && folder >= 0)) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, whole, sizeof whole - 1);
    whole[length < 0 ? 0 : length] = 0;
    path = whole;
  }
  if (strncmp(path, prefix, strlen(prefix))) return 0;
  errno = EROFS;
  return 1;
}

static int writes(int flags) { return flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC); }

#define OPEN(name, signature, call, folder, path)                       \
  int name signature {                                                  \
    va_list more;                                                       \
    va_start(more, flags);                                              \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more);                                                       \
    return writes(flags) && refused(folder, path) ? -1 : NEXT(name) call; \
  }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode), -1, path)
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), -1, path)
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode), at, path)
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode), at, path)

#define REFUSE(type, name, signature, call, folder, path) \
  type name signature { return refused(folder, path) ? (type)-1 : NEXT(name) call; }
REFUSE(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), fd, NULL)
REFUSE(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), fd, NULL)
REFUSE(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), fd, NULL)
REFUSE(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), fd, NULL)
REFUSE(int, ftruncate, (int fd, off_t size), (fd, size), fd, NULL)
REFUSE(int, ftruncate64, (int fd, off64_t size), (fd, size), fd, NULL)
REFUSE(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, path)
REFUSE(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), at, path)
REFUSE(int, unlink, (const char *path), (path), -1, path)
REFUSE(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), at, path)
REFUSE(int, rmdir, (const char *path), (path), -1, path)
REFUSE(int, rename, (const char *from, const char *to), (from, to), -1, from)
REFUSE(int, renameat, (int at, const char *from, int there, const char *to), (at, from, there, to), at, from)
