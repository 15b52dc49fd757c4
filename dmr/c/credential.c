#include "credential.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sha256.h"

enum { MIN_KEY = 32, MAX_KEY = 4096 };

static char *with_key(const char *path, const char *digest, char problem[DMR_MAX_PROBLEM])
{
    char secret[MAX_KEY], hex[DMR_HEX], *token = NULL;
    struct stat status;
    ssize_t length = -1;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    /* Of the opened file, not of the name: the name may be changed in between. */
    if (file < 0 || fstat(file, &status) != 0)
        snprintf(problem, DMR_MAX_PROBLEM, "key file %.200s: %s", path, strerror(errno));
    else if (!S_ISREG(status.st_mode))
        snprintf(problem, DMR_MAX_PROBLEM, "key file %.200s is not a regular file", path);
    else if (status.st_uid != geteuid())
        snprintf(problem, DMR_MAX_PROBLEM, "key file %.200s belongs to another user", path);
    else if (status.st_mode & 077)
        snprintf(problem, DMR_MAX_PROBLEM, "key file %.200s can be used by others: chmod 600 it", path);
    else if ((length = read(file, secret, sizeof secret)) < MIN_KEY)
        snprintf(problem, DMR_MAX_PROBLEM, "key file %.200s is shorter than %d bytes", path, MIN_KEY);
    else if ((token = malloc(sizeof "key:" + DMR_HEX))) {
        dmr_hmac_hex(secret, (size_t)length, digest, strlen(digest), hex);
        sprintf(token, "key:%s", hex);
    } else
        snprintf(problem, DMR_MAX_PROBLEM, "no memory");
    explicit_bzero(secret, sizeof secret);
    if (file >= 0)
        close(file);
    return token;
}

/* From munge.h, part of libmunge's stable interface (its soname is libmunge.so.2 since 2007). */
enum { OPTION_SOCKET = 8 };

typedef struct {
    void *(*create)(void);
    void (*destroy)(void *context);
    int (*set)(void *context, int option, ...);
    int (*encode)(char **credential, void *context, const void *data, int length);
} munge;

static int load(munge *library)
{
    /* Not unloaded again: a call that is late may still be inside. */
    void *handle = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return 0;
    /* The way that POSIX gives for turning dlsym's result into a pointer to a function. */
    *(void **)&library->create = dlsym(handle, "munge_ctx_create");
    *(void **)&library->destroy = dlsym(handle, "munge_ctx_destroy");
    *(void **)&library->set = dlsym(handle, "munge_ctx_set");
    *(void **)&library->encode = dlsym(handle, "munge_encode");
    return library->create && library->destroy && library->set && library->encode;
}

static char *with_munge(const char *digest, char problem[DMR_MAX_PROBLEM])
{
    munge library;
    const char *socket = getenv("DMR_MUNGE_SOCKET");
    char *credential = NULL, *token = NULL;
    if (!load(&library)) {
        snprintf(problem, DMR_MAX_PROBLEM, "no credential: DMR_KEY_FILE is not set and libmunge.so.2 is not installed");
        return NULL;
    }
    void *context = library.create();
    int code = 0;
    if (context && socket && *socket)
        code = library.set(context, OPTION_SOCKET, socket);
    if (context && !code)
        code = library.encode(&credential, context, digest, (int)strlen(digest));
    if (context && !code && credential) {
        size_t length = strlen(credential) + sizeof "munge:";
        if ((token = malloc(length)))
            snprintf(token, length, "munge:%s", credential);
    }
    if (!token)
        snprintf(problem, DMR_MAX_PROBLEM, code == 6 ? "munged does not answer at its socket"
                                                     : "munge cannot make the credential (error %d)", code);
    free(credential);
    if (context)
        library.destroy(context);
    return token;
}

char *dmr_credential(const char *digest, char problem[DMR_MAX_PROBLEM])
{
    const char *key_file = getenv("DMR_KEY_FILE");
    problem[0] = '\0';
    return key_file && *key_file ? with_key(key_file, digest, problem) : with_munge(digest, problem);
}
