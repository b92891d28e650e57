// Loaded before libc (LD_PRELOAD): numbers the calls that touch files by a relative name (the commands under test are
// run in a folder of their own and given nothing else), and lets the one numbered FAULT_AT go wrong. FAULT_KIND:
//   kill    the process ends before the call
//   torn    a write is done by half, then the process ends; other calls: as kill
//   NUMBER  the call fails with this errno
//   full    this call and all later ones that need room on the disk fail with ENOSPC
//   gone    this call and all later ones fail with EIO
// FAULT_LOG names a file that gets one line per numbered call: number, call, path. Everything else is passed on.
// FAULT_RECORD names two files, .calls and .data, that receive every successful call that changes files, and what was
// written: enough to rebuild the folder as a power cut would leave it (power.py).
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))real(#name))

static void* real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == NULL) abort();
  return found;
}

enum { descriptors = 1024, longest_name = 256 };
static char names[descriptors][longest_name];  // of what is open; empty: nothing that is watched
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long calls = 0;
static int lasting = 0;

static int is_watched(const char* path) { return path != NULL && path[0] != '/' && path[0] != '\0'; }

static const char* name_of(int descriptor) {
  return descriptor >= 0 && descriptor < descriptors && names[descriptor][0] != '\0' ? names[descriptor] : NULL;
}

static int keep_name(int descriptor, const char* path) {
  if (descriptor >= 0 && descriptor < descriptors) snprintf(names[descriptor], longest_name, "%s", path);
  return descriptor;
}

static void note(long number, const char* call, const char* path) {
  const char* log = getenv("FAULT_LOG");
  if (log == NULL) return;
  const int file = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  char line[4096];
  const int size = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
  if (file < 0 || size < 0 || REAL(write)(file, line, (size_t)size) < 0) abort();
  REAL(close)(file);
}

// The path of an open file or folder, and that of a name below one.
static void path_of(int descriptor, char* path, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = REAL(readlink)(link, path, size - 1);
  if (length < 0) abort();
  path[length] = '\0';
}
static void path_below(int folder, const char* name, char* path, size_t size) {
  if (folder == AT_FDCWD || name[0] == '/') {
    snprintf(path, size, "%s", name);
    return;
  }
  path_of(folder, path, size);
  const size_t length = strlen(path);
  snprintf(path + length, size - length, "/%s", name);
}

// Appends a call with its paths and two numbers; `data` are the bytes of a write.
static void record(const char* call, const char* path, const char* to, long long first, long long second,
                   const void* data) {
  const char* base = getenv("FAULT_RECORD");
  if (base == NULL) return;
  char name[4096], line[16384];
  pthread_mutex_lock(&mutex);
  snprintf(name, sizeof name, "%s.calls", base);
  const int calls_file = REAL(open)(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  snprintf(name, sizeof name, "%s.data", base);
  const int data_file = REAL(open)(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const int size = snprintf(line, sizeof line, "%s\t%s\t%s\t%lld\t%lld\n", call, path, to, first, second);
  if (calls_file < 0 || data_file < 0 || size < 0 || REAL(write)(calls_file, line, (size_t)size) != size) abort();
  if (data != NULL && REAL(write)(data_file, data, (size_t)second) != second) abort();
  REAL(close)(calls_file);
  REAL(close)(data_file);
  pthread_mutex_unlock(&mutex);
}

enum room { none, needed };

// 0: the call is made as asked for. 1: it fails with errno set. 2: half of it is to be done, then the end.
static int fault(const char* call, const char* path, enum room room) {
  const char *at = getenv("FAULT_AT"), *kind = getenv("FAULT_KIND");
  pthread_mutex_lock(&mutex);
  const long number = ++calls;
  note(number, call, path);
  const int now = at != NULL && kind != NULL && number == atol(at);
  const int full = kind != NULL && strcmp(kind, "full") == 0, gone = kind != NULL && strcmp(kind, "gone") == 0;
  lasting = lasting || (now && (full || gone));
  pthread_mutex_unlock(&mutex);
  if (lasting && (gone || room == needed)) {
    errno = gone ? EIO : ENOSPC;
    return 1;
  }
  if (!now || full) return 0;
  if (strcmp(kind, "torn") == 0 && strcmp(call, "write") == 0) return 2;
  if (strcmp(kind, "torn") == 0 || strcmp(kind, "kill") == 0) kill(getpid(), SIGKILL);
  errno = atoi(kind);
  return 1;
}

#define PASS(call, path, room, otherwise) \
  if (is_watched(path) && fault(call, path, room)) return otherwise
#define PASS_OPEN(call, descriptor, room, otherwise) \
  if (name_of(descriptor) != NULL && fault(call, name_of(descriptor), room)) return otherwise

static int open_at(int folder, const char* path, int flags, mode_t mode) {
  const int watched = folder == AT_FDCWD ? is_watched(path) : name_of(folder) != NULL;
  const int creates = (flags & O_CREAT) != 0;
  if (watched && fault(creates ? "create" : "open", path, creates ? needed : none)) return -1;
  const int descriptor = keep_name(REAL(openat)(folder, path, flags, mode), watched ? path : "");
  if (watched && descriptor >= 0 && (flags & (O_CREAT | O_TRUNC))) {
    char whole[4096];
    path_of(descriptor, whole, sizeof whole);
    record("open", whole, "", (flags & O_TRUNC) != 0, 0, NULL);
  }
  return descriptor;
}

static mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_at(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_at(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_at(folder, path, flags, mode);
}

ssize_t write(int descriptor, const void* data, size_t size) {
  if (name_of(descriptor) == NULL) return REAL(write)(descriptor, data, size);
  switch (fault("write", name_of(descriptor), needed)) {
    case 1: return -1;
    case 2:
      if (REAL(write)(descriptor, data, size / 2) < 0) abort();
      kill(getpid(), SIGKILL);
  }
  const ssize_t written = REAL(write)(descriptor, data, size);
  if (written > 0) {
    char path[4096];
    path_of(descriptor, path, sizeof path);
    // The position after a write is known for files that are appended to as well.
    record("write", path, "", lseek(descriptor, 0, SEEK_CUR) - written, written, data);
  }
  return written;
}
int ftruncate(int descriptor, off_t size) {
  if (name_of(descriptor) == NULL) return REAL(ftruncate)(descriptor, size);
  const int result = REAL(ftruncate)(descriptor, size);
  char path[4096];
  path_of(descriptor, path, sizeof path);
  if (result == 0) record("truncate", path, "", size, 0, NULL);
  return result;
}
ssize_t sendfile(int to, int from, off_t* offset, size_t size) {
  PASS_OPEN("sendfile", to, needed, -1);
  if (name_of(to) != NULL && getenv("FAULT_RECORD") != NULL) {  // the caller then copies with read and write
    errno = ENOSYS;
    return -1;
  }
  return REAL(sendfile)(to, from, offset, size);
}
ssize_t read(int descriptor, void* data, size_t size) {
  PASS_OPEN("read", descriptor, none, -1);
  return REAL(read)(descriptor, data, size);
}
ssize_t pread(int descriptor, void* data, size_t size, off_t offset) {
  PASS_OPEN("pread", descriptor, none, -1);
  return REAL(pread)(descriptor, data, size, offset);
}
int fsync(int descriptor) {
  PASS_OPEN("fsync", descriptor, needed, -1);
  if (name_of(descriptor) != NULL) {
    char path[4096];
    path_of(descriptor, path, sizeof path);
    record("fsync", path, "", 0, 0, NULL);
  }
  return REAL(fsync)(descriptor);
}
int flock(int descriptor, int operation) {
  PASS_OPEN("flock", descriptor, none, -1);
  return REAL(flock)(descriptor, operation);
}
int fstat(int descriptor, struct stat* status) {
  PASS_OPEN("fstat", descriptor, none, -1);
  return REAL(fstat)(descriptor, status);
}
int fstat64(int descriptor, struct stat64* status) {
  PASS_OPEN("fstat", descriptor, none, -1);
  return REAL(fstat64)(descriptor, status);
}
int close(int descriptor) {
  char name[longest_name] = "";
  if (name_of(descriptor) != NULL) memcpy(name, name_of(descriptor), longest_name);
  keep_name(descriptor, "");
  if (name[0] != '\0' && fault("close", name, none)) {
    const int error = errno;
    REAL(close)(descriptor);  // a failed close gives the descriptor back all the same
    errno = error;
    return -1;
  }
  return REAL(close)(descriptor);
}
void* mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset) {
  PASS_OPEN("mmap", descriptor, none, (void*)-1);
  return ((void* (*)(void*, size_t, int, int, int, off_t))real("mmap"))(address, length, protection, flags, descriptor,
                                                                        offset);
}

int rename(const char* from, const char* to) {
  PASS("rename", to, none, -1);
  const int result = REAL(rename)(from, to);
  if (result == 0 && is_watched(to)) record("rename", from, to, 0, 0, NULL);
  return result;
}
int unlink(const char* path) {
  PASS("unlink", path, none, -1);
  const int result = REAL(unlink)(path);
  if (result == 0 && is_watched(path)) record("remove", path, "", 0, 0, NULL);
  return result;
}
int rmdir(const char* path) {
  PASS("rmdir", path, none, -1);
  const int result = REAL(rmdir)(path);
  if (result == 0 && is_watched(path)) record("remove", path, "", 0, 0, NULL);
  return result;
}
int remove(const char* path) {
  PASS("remove", path, none, -1);
  const int result = REAL(remove)(path);
  if (result == 0 && is_watched(path)) record("remove", path, "", 0, 0, NULL);
  return result;
}
int unlinkat(int folder, const char* path, int flags) {
  const int watched = folder == AT_FDCWD ? is_watched(path) : name_of(folder) != NULL;
  if (watched && fault("unlinkat", path, none)) return -1;
  char whole[4096];
  if (watched) path_below(folder, path, whole, sizeof whole);
  const int result = REAL(unlinkat)(folder, path, flags);
  if (result == 0 && watched) record("remove", whole, "", 0, 0, NULL);
  return result;
}
int mkdir(const char* path, mode_t mode) {
  PASS("mkdir", path, needed, -1);
  const int result = REAL(mkdir)(path, mode);
  if (result == 0 && is_watched(path)) record("mkdir", path, "", 0, 0, NULL);
  return result;
}
int truncate(const char* path, off_t size) {
  PASS("truncate", path, none, -1);
  const int result = REAL(truncate)(path, size);
  if (result == 0 && is_watched(path)) record("truncate", path, "", size, 0, NULL);
  return result;
}
int stat(const char* path, struct stat* status) {
  PASS("stat", path, none, -1);
  return REAL(stat)(path, status);
}
int lstat(const char* path, struct stat* status) {
  PASS("lstat", path, none, -1);
  return REAL(lstat)(path, status);
}
ssize_t readlink(const char* path, char* to, size_t size) {
  PASS("readlink", path, none, -1);
  return REAL(readlink)(path, to, size);
}

// Folders are read through a stream, which is watched where its descriptor or its path is.
static DIR* streams[64];
static DIR* watch_stream(DIR* stream) {
  for (int i = 0; stream != NULL && i < 64; ++i) {
    if (streams[i] != NULL) continue;
    streams[i] = stream;
    break;
  }
  return stream;
}
DIR* opendir(const char* path) {
  PASS("opendir", path, none, NULL);
  DIR* stream = REAL(opendir)(path);
  return is_watched(path) ? watch_stream(stream) : stream;
}
DIR* fdopendir(int descriptor) {
  PASS_OPEN("fdopendir", descriptor, none, NULL);
  const int watched = name_of(descriptor) != NULL;
  DIR* stream = REAL(fdopendir)(descriptor);
  return watched ? watch_stream(stream) : stream;
}
struct dirent* readdir(DIR* stream) {
  for (int i = 0; i < 64; ++i) {
    if (streams[i] == stream && fault("readdir", "", none)) return NULL;
  }
  return REAL(readdir)(stream);
}
int closedir(DIR* stream) {
  for (int i = 0; i < 64; ++i) {
    if (streams[i] != stream) continue;
    streams[i] = NULL;
    keep_name(dirfd(stream), "");  // it is closed without a call of close() that would be seen here
  }
  return REAL(closedir)(stream);
}
