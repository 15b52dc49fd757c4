#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "quiet.h"
#include "resize.h"

enum { MAX_PATH = 4096, MAX_ARGUMENTS = 1 << 20 };

/* The program starts anew, so relative paths must mean what they meant at its start, wherever it has gone since. */
static char start_directory[MAX_PATH], program[MAX_PATH], arguments[MAX_ARGUMENTS];
static size_t arguments_length;

__attribute__((constructor)) static void remember(void)
{
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    if (!getcwd(start_directory, sizeof start_directory))
        start_directory[0] = '\0';
    FILE *file = fopen("/proc/self/cmdline", "rb");
    if (file) {
        arguments_length = fread(arguments, 1, sizeof arguments, file);
        fclose(file);
    }
}

/* MPI limits the values of an info object. hydra could read the nodes from a file, but on the host of mpiexec, and it
 * ends the whole application where it cannot. */
static void too_long(const char *what, const char *value, char *problem, int capacity)
{
    size_t length = strlen(value);
    if (!problem[0] && length >= MPI_MAX_INFO_VAL) /* one more for the end */
        snprintf(problem, (size_t)capacity, "%s has %zu characters, and MPI_Comm_spawn takes less than %d", what,
                 length, MPI_MAX_INFO_VAL);
}

/* hydra reports no error when a program cannot be started: MPI_Comm_spawn then never returns, or the whole application
 * is ended. So what can be seen beforehand is looked at beforehand. */
void dmr_spawn_preflight(const char *hosts, bool launched, char *problem, int capacity)
{
    struct stat status;
    problem[0] = '\0';
    if (!program[0] || access(program, X_OK) != 0)
        snprintf(problem, (size_t)capacity, "the program %.200s is gone or cannot be executed", program);
    else if (!start_directory[0] || stat(start_directory, &status) != 0 || !S_ISDIR(status.st_mode))
        snprintf(problem, (size_t)capacity, "the directory %.200s is gone", start_directory);
    if (problem[0] || launched)
        return;
    if (!arguments_length || arguments_length == sizeof arguments || arguments[arguments_length - 1])
        snprintf(problem, (size_t)capacity, "the arguments of the program are not known or too long");
    too_long("the name of the start directory", start_directory, problem, capacity);
    too_long("the list of new nodes", hosts, problem, capacity);
    /* MPICH 5 passes arguments to its process manager line by line. */
    for (size_t i = strlen(arguments) + 1; !problem[0] && i < arguments_length; i += strlen(arguments + i) + 1)
        if (!arguments[i] || strchr(arguments + i, '\n'))
            snprintf(problem, (size_t)capacity, "an argument of the program is empty or holds a newline");
}

/* The arguments without the program's name, ended by NULL; only the array is to be freed. */
static char **argument_list(void)
{
    size_t count = 0, i;
    for (i = 0; i < arguments_length; i += strlen(arguments + i) + 1)
        count++;
    char **list = calloc(count + 1, sizeof *list);
    count = 0;
    for (i = strlen(arguments) + 1; list && i < arguments_length; i += strlen(arguments + i) + 1)
        list[count++] = arguments + i;
    return list;
}

MPI_Comm dmr_spawn(MPI_Comm comm, int size, const char *hosts, char *problem, int capacity)
{
    MPI_Comm children = MPI_COMM_NULL;
    MPI_Info info;
    int code = MPI_ERR_NO_MEM, worst, rank, length;
    char **list = argument_list();
    MPI_Comm_rank(comm, &rank);
    MPI_Info_create(&info);
    MPI_Info_set(info, "wdir", start_directory);
    MPI_Info_set(info, "hosts", hosts);
    MPI_Errhandler before = dmr_quiet(comm);
    int ready = list != NULL;
    MPI_Allreduce(MPI_IN_PLACE, &ready, 1, MPI_INT, MPI_MIN, comm);
    if (ready)
        code = MPI_Comm_spawn(program, list, size, info, 0, comm, &children, MPI_ERRCODES_IGNORE);
    dmr_loud(comm, before);
    MPI_Info_free(&info);
    free(list);
    worst = code != MPI_SUCCESS;
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, comm);
    if (!worst)
        return children;
    if (code == MPI_SUCCESS)
        MPI_Comm_disconnect(&children);
    char text[MPI_MAX_ERROR_STRING] = "it failed on another rank";
    if (code != MPI_SUCCESS)
        MPI_Error_string(code, text, &length);
    snprintf(problem, (size_t)capacity, "MPI_Comm_spawn: %.300s", text);
    return MPI_COMM_NULL;
}
