/* A malleable Jacobi solver, the twin of dmr/examples/jacobi.py:
 *
 *     python -m dmr.launch -n 2 ./jacobi --rows 512 --cols 512 --sweeps 2000 --out result.bin
 *
 * The field is dealt to the ranks in blocks of rows. The upper edge is held at 1, the other edges at 0. The result, raw
 * doubles by rows, is the same to the last bit whatever the number of ranks, and however often it changes on the way.
 * What makes the program malleable is marked with (*). */
#include <dmr.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    int rows, cols, sweeps, minimum, maximum, factor, check_every, background;
    double sweep_seconds;
    const char *out, *report;
} options;

typedef struct {
    int done;
    double change;
} state;

static MPI_Comm world; /* (*) all processes, in place of MPI_COMM_WORLD: see dmr_world() in dmr.h */

static void die(const char *what, const char *why)
{
    fprintf(stderr, "jacobi: %s: %s\n", what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static int number(const char *name, const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value < 1 || value > INT_MAX)
        die(name, "must be a whole number from 1");
    return (int)value;
}

static options read_options(int count, char **words)
{
    options o = {512, 512, 1000, 1, 16, 2, 10, 0, 0.0, "result.bin", NULL};
    static const struct option known[] = {
        {"rows", 1, NULL, 'r'},        {"cols", 1, NULL, 'c'},          {"sweeps", 1, NULL, 's'},
        {"min", 1, NULL, 'm'},         {"max", 1, NULL, 'M'},           {"factor", 1, NULL, 'f'},
        {"check-every", 1, NULL, 'e'}, {"sweep-seconds", 1, NULL, 'p'}, {"background", 0, NULL, 'b'},
        {"out", 1, NULL, 'o'},         {"report", 1, NULL, 'R'},        {NULL, 0, NULL, 0},
    };
    int c, which = 0;
    while ((c = getopt_long(count, words, "", known, &which)) != -1) {
        switch (c) {
        case 'r': o.rows = number("--rows", optarg); break;
        case 'c': o.cols = number("--cols", optarg); break;
        case 's': o.sweeps = number("--sweeps", optarg); break;
        case 'm': o.minimum = number("--min", optarg); break;
        case 'M': o.maximum = number("--max", optarg); break;
        case 'f': o.factor = number("--factor", optarg); break;
        case 'e': o.check_every = number("--check-every", optarg); break;
        case 'p': o.sweep_seconds = atof(optarg); break;
        case 'b': o.background = 1; break;
        case 'o': o.out = optarg; break;
        case 'R': o.report = optarg; break;
        default: die("options", "see examples/jacobi.c");
        }
    }
    return o;
}

/* Rank 0 appends a line of JSON to the report, if one is wanted. */
static void report(const options *o, int rank, int size, const state *s, const char *event)
{
    FILE *file = rank == 0 && o->report ? fopen(o->report, "a") : NULL;
    if (file) {
        fprintf(file, "{\"sweep\": %d, \"size\": %d, \"event\": \"%s\"}\n", s->done, size, event);
        fclose(file);
    }
}

/* Replaces every point by the mean of its neighbours; returns the largest change anywhere. */
static double sweep(double *field, double *next, int64_t rows, int cols, int rank, int size)
{
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    double *last = field + rows * cols, change = 0.0;
    MPI_Sendrecv(field + cols, cols, MPI_DOUBLE, above, 0, last + cols, cols, MPI_DOUBLE, below, 0, world,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(last, cols, MPI_DOUBLE, below, 0, field, cols, MPI_DOUBLE, above, 0, world,
                 MPI_STATUS_IGNORE);
    for (int64_t row = 1; row <= rows; row++)
        for (int col = 1; col < cols - 1; col++) {
            const double *p = field + row * cols + col;
            double value = 0.25 * (p[-cols] + p[cols] + p[-1] + p[1]);
            next[row * cols + col] = value;
            change = fmax(change, fabs(value - *p));
        }
    for (int64_t row = 1; row <= rows; row++)
        memcpy(field + row * cols + 1, next + row * cols + 1, (size_t)(cols > 2 ? cols - 2 : 0) * sizeof *field);
    MPI_Allreduce(MPI_IN_PLACE, &change, 1, MPI_DOUBLE, MPI_MAX, world);
    return change;
}

/* A bumpy first guess: no two rows alike, so that no exchange of rows goes unnoticed. */
static void fill(double *block, int64_t start, int64_t end, int cols)
{
    for (int64_t row = start; row < end; row++)
        for (int64_t col = 0; col < cols; col++)
            block[(row - start) * cols + col] =
                col == 0 || col == cols - 1 ? 0.0 : (double)((row * row + 37 * row + 11 * col) % 1009) / 1009;
}

/* Every rank writes its rows to their place in the file. */
static void write_field(const options *o, const double *block, int64_t start, int64_t end, int rank)
{
    if (rank == 0) {
        FILE *file = fopen(o->out, "wb");
        if (!file || fclose(file) != 0)
            die(o->out, strerror(errno));
    }
    MPI_Barrier(world);
    FILE *file = fopen(o->out, "r+b");
    size_t count = (size_t)((end - start) * o->cols);
    if (!file || fseek(file, (long)(start * o->cols * (int64_t)sizeof *block), SEEK_SET) != 0 ||
        fwrite(block, sizeof *block, count, file) != count || fclose(file) != 0)
        die(o->out, strerror(errno));
    MPI_Barrier(world);
}

/* Sweeps to the end; or, with 1, until other processes go on. */
static int solve(const options *o, double *field, double *next, int64_t start, int64_t end, state *s, int rank,
                 int size)
{
    struct timespec pause = {(time_t)o->sweep_seconds, (long)((o->sweep_seconds - floor(o->sweep_seconds)) * 1e9)};
    while (s->done < o->sweeps) {
        s->change = sweep(field, next, end - start, o->cols, rank, size);
        s->done++;
        nanosleep(&pause, NULL);
        if (s->done % o->check_every != 0 || s->done == o->sweeps)
            continue;
        int new_size; /* (*) from here */
        dmr_handler *handler;
        int action = (o->background ? dmr_icheck_status : dmr_check_status)(world, o->minimum, o->maximum,
                                                                          o->factor, 0, &new_size, &handler);
        if (action == DMR_ERROR)
            die("dmr", dmr_error());
        if (handler) {
            report(o, rank, size, s, action == DMR_EXPAND ? "expand" : "shrink");
            if (dmr_send(handler, s, sizeof *s) != 0 ||
                dmr_send_blocks(handler, field + o->cols, o->rows, (size_t)o->cols * sizeof *field) != 0)
                die("dmr", dmr_error());
            dmr_finish(handler);
            return 1; /* the new processes go on from here */
        } /* (*) to here */
    }
    return 0;
}

int main(int count, char **words)
{
    int rank, size;
    int64_t start, end;
    state s = {0, 0.0};
    MPI_Init(&count, &words);
    dmr_handler *parent = dmr_inherited(MPI_COMM_WORLD); /* (*) */
    world = dmr_world();                                 /* (*) */
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    options o = read_options(count, words);
    if (o.rows < (o.maximum > size ? o.maximum : size))
        die("--rows", "every rank needs at least one row");
    dmr_block_bounds(o.rows, size, rank, &start, &end);
    size_t points = (size_t)(end - start + 2) * (size_t)o.cols;
    double *field = calloc(points, sizeof *field), *next = calloc(points, sizeof *next);
    if (!field || !next)
        die("memory", "not enough");
    if (parent) { /* (*) from here */
        if (dmr_receive(parent, &s, sizeof s) != 0 ||
            dmr_receive_blocks(parent, field + o.cols, o.rows, (size_t)o.cols * sizeof *field) != 0)
            die("dmr", dmr_error());
        dmr_finish(parent);
    } else { /* (*) to here */
        fill(field + o.cols, start, end, o.cols);
    }
    report(&o, rank, size, &s, parent ? "resized" : "start");
    for (int col = 0; rank == 0 && col < o.cols; col++)
        field[col] = 1.0;
    if (!solve(&o, field, next, start, end, &s, rank, size)) {
        write_field(&o, field + o.cols, start, end, rank);
        report(&o, rank, size, &s, "end");
        if (rank == 0)
            printf("%d sweeps, last change %.6e, on %d ranks at the end\n", s.done, s.change, size);
    }
    free(field);
    free(next);
    MPI_Finalize();
    return 0;
}
