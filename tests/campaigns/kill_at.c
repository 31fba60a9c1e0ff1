/* Counts what a process does to the files below $KILL_FOLDER, whoever calls it: Python, TensorStore, the C library.
 *
 * With $KILL_AT=N the process ends by SIGKILL just before its N-th operation; with $KILL_LOG each is written there, a line
 * of its name and its path. With $KILL_COPIES operations are made one at a time, and before the N-th the folder is copied to
 * $KILL_COPIES/N: as it would be left by a process that is killed there. Preload it: LD_PRELOAD=kill_at.so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_long operations;
static pthread_mutex_t one_at_a_time = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void lock(void) {
  if (getenv("KILL_COPIES")) pthread_mutex_lock(&one_at_a_time);
}

static void unlock(void) {
  if (getenv("KILL_COPIES")) pthread_mutex_unlock(&one_at_a_time);
}

static void copy(const char *folder, const char *copies, long number) {
  char to[PATH_MAX], *const none[] = {NULL};
  snprintf(to, sizeof to, "%s/%ld", copies, number);
  char *const command[] = {"/bin/cp", "-a", (char *)folder, to, NULL};
  pid_t process;
  if (access(folder, F_OK) || posix_spawn(&process, command[0], NULL, NULL, command, none)) return;
  waitpid(process, NULL, 0);
}

static void count(const char *name, const char *path) {
  const char *folder = getenv("KILL_FOLDER"), *at = getenv("KILL_AT"), *log = getenv("KILL_LOG");
  const char *copies = getenv("KILL_COPIES");
  if (!folder || strncmp(path, folder, strlen(folder))) return;
  long number = atomic_fetch_add(&operations, 1) + 1;
  if (log) {
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%s %s\n", name, path);
    int file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    syscall(SYS_write, file, line, length);
    syscall(SYS_close, file);
  }
  if (copies) copy(folder, copies, number);
  if (at && number == atol(at)) syscall(SYS_kill, getpid(), SIGKILL);
}

static void count_file(const char *name, int file, const char *below) {
  char link[64], path[2 * PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length <= 0) return;
  snprintf(path + length, sizeof path - length, "%s%s", *below ? "/" : "", below);
  count(name, path);
}

static void count_at(const char *name, int folder, const char *path) {
  char here[PATH_MAX], whole[2 * PATH_MAX];
  if (*path == '/') return count(name, path);
  if (folder != AT_FDCWD) return count_file(name, folder, path);
  if (!getcwd(here, sizeof here)) return;
  snprintf(whole, sizeof whole, "%s/%s", here, path);
  count(name, whole);
}

#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE(flags) /* which is there only where a file may be made */ \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

#define MAKE(type, before, operation) lock(); before; type result = operation; unlock(); return result;

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    MODE(flags) MAKE(int, if (WRITES(flags)) count_at(#name, AT_FDCWD, path), REAL(name)(path, flags, mode)) }
#define OPENAT(name) \
  int name(int folder, const char *path, int flags, ...) { \
    MODE(flags) MAKE(int, if (WRITES(flags)) count_at(#name, folder, path), REAL(name)(folder, path, flags, mode)) }
#define FOPEN(name) \
  FILE *name(const char *path, const char *mode) { \
    MAKE(FILE *, if (*mode != 'r') count_at(#name, AT_FDCWD, path), REAL(name)(path, mode)) }
#define ON_FILE(type, name, parameters, arguments) \
  type name parameters { MAKE(type, count_file(#name, file, ""), REAL(name) arguments) }
#define ON_PATH(name, at, path, parameters, arguments) \
  int name parameters { MAKE(int, count_at(#name, at, path), REAL(name) arguments) }

OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64) FOPEN(fopen) FOPEN(fopen64)
ON_FILE(ssize_t, write, (int file, const void *data, size_t size), (file, data, size))
ON_FILE(ssize_t, writev, (int file, const struct iovec *data, int number), (file, data, number))
ON_FILE(ssize_t, pwrite, (int file, const void *data, size_t size, off_t offset), (file, data, size, offset))
ON_FILE(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t offset), (file, data, size, offset))
ON_FILE(int, fsync, (int file), (file))
ON_FILE(int, fdatasync, (int file), (file))
ON_FILE(int, ftruncate, (int file, off_t size), (file, size))
ON_FILE(int, ftruncate64, (int file, off64_t size), (file, size))
ON_PATH(rename, AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(renameat, at, to, (int before, const char *from, int at, const char *to), (before, from, at, to))
ON_PATH(renameat2, at, to, (int before, const char *from, int at, const char *to, unsigned flags),
        (before, from, at, to, flags))
ON_PATH(link, AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(mkdir, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
ON_PATH(mkdirat, at, path, (int at, const char *path, mode_t mode), (at, path, mode))
ON_PATH(unlink, AT_FDCWD, path, (const char *path), (path))
ON_PATH(unlinkat, at, path, (int at, const char *path, int flags), (at, path, flags))
ON_PATH(rmdir, AT_FDCWD, path, (const char *path), (path))
