// Checks an MPI library whose messages go over a DAT provider. The exit status is 1 if a check
// fails.
//
//   mpiexec -n RANKS check hello|messages|collective|onesided

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks, errors;

static void check(int good, const char *what)
{
	if (good)
		return;
	errors++;
	printf("rank %d of %d: wrong: %s\n", rank, ranks, what);
}

// hello: every rank sends its number to every other rank.
static void hello(void)
{
	for (int from = 0; from < ranks; from++) {
		int name = rank == from ? from + 1000 : 0;

		MPI_Bcast(&name, 1, MPI_INT, from, MPI_COMM_WORLD);
		check(name == from + 1000, "hello");
	}
}

enum { LARGEST = 4 << 20 };

static unsigned char pattern(long i, int from, long n) { return i * 7 + i / 251 + from * 13 + n; }

// exchange sends n bytes to one rank, and compares what it receives from another.
static void exchange(unsigned char *out, unsigned char *in, long n, int to, int from)
{
	MPI_Status status;
	int got;

	for (long i = 0; i < n; i++)
		out[i] = pattern(i, rank, n);
	memset(in, 0xee, n + 1);
	MPI_Sendrecv(out, n, MPI_BYTE, to, 7, in, n, MPI_BYTE, from, 7, MPI_COMM_WORLD, &status);
	MPI_Get_count(&status, MPI_BYTE, &got);
	check(got == n, "length");
	for (long i = 0; i < n; i++)
		if (in[i] != pattern(i, from, n)) {
			check(0, "contents");
			break;
		}
	check(in[n] == 0xee, "beyond the end");
}

// messages: every pair of ranks exchanges messages of 0 bytes to 4 MiB. The sizes are the powers of
// two, and sizes that are one byte less or one byte more. Then ranks send many messages before the
// receiver waits for any.
static void messages(void)
{
	enum { MANY = 200 };
	unsigned char *out = malloc(LARGEST + 2), *in = malloc(LARGEST + 2);
	MPI_Request requests[2 * MANY];
	int sent[MANY], got[MANY];

	for (int step = 1; step < ranks; step++) {
		int to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;

		exchange(out, in, 0, to, from);
		for (long n = 1; n <= LARGEST; n *= 2)
			for (long d = -1; d <= 1; d++)
				if (n + d <= LARGEST)
					exchange(out, in, n + d, to, from);
	}
	for (int i = 0; i < MANY; i++) {
		sent[i] = rank * 1000 + i;
		MPI_Isend(&sent[i], 1, MPI_INT, (rank + 1) % ranks, i, MPI_COMM_WORLD, &requests[i]);
	}
	usleep(100000);
	for (int i = MANY - 1; i >= 0; i--)
		MPI_Irecv(&got[i], 1, MPI_INT, (rank - 1 + ranks) % ranks, i, MPI_COMM_WORLD, &requests[MANY + i]);
	MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < MANY; i++)
		check(got[i] == (rank - 1 + ranks) % ranks * 1000 + i, "unexpected messages");
}

static void collective(void)
{
	enum { N = 100000 };
	int *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y * ranks), sum = ranks * (ranks - 1) / 2;
	int good = 1;

	for (int i = 0; i < N; i++)
		x[i] = i + rank;
	MPI_Allreduce(x, y, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < N; i++)
		good &= y[i] == ranks * i + sum;
	check(good, "allreduce");
	MPI_Allgather(x, N, MPI_INT, y, N, MPI_INT, MPI_COMM_WORLD);
	for (int p = 0; p < ranks; p++)
		for (int i = 0; i < N; i++)
			good &= y[p * N + i] == i + p;
	check(good, "allgather");
	for (int i = 0; i < 100; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	for (int root = 0; root < ranks; root++) {
		for (int i = 0; i < N; i++)
			x[i] = rank == root ? i + root : -1;
		MPI_Bcast(x, N, MPI_INT, root, MPI_COMM_WORLD);
		for (int i = 0; i < N; i++)
			good &= x[i] == i + root;
	}
	check(good, "bcast");
	for (int p = 0; p < ranks; p++)
		x[p] = rank * 100 + p;
	MPI_Alltoall(x, 1, MPI_INT, y, 1, MPI_INT, MPI_COMM_WORLD);
	for (int p = 0; p < ranks; p++)
		good &= y[p] == p * 100 + rank;
	check(good, "alltoall");
}

static void onesided(void)
{
	int *window = calloc(ranks + 1, sizeof *window), me = rank + 1, next = (rank + 1) % ranks, got = 0;
	MPI_Win win;

	MPI_Win_create(window, (ranks + 1) * sizeof *window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	for (int p = 0; p < ranks; p++)
		MPI_Put(&me, 1, MPI_INT, p, rank, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	for (int p = 0; p < ranks; p++)
		check(window[p] == p + 1, "put");
	MPI_Accumulate(&me, 1, MPI_INT, 0, ranks, 1, MPI_INT, MPI_SUM, win);
	MPI_Win_fence(0, win);
	check(rank || window[ranks] == ranks * (ranks + 1) / 2, "accumulate");
	MPI_Get(&got, 1, MPI_INT, next, next, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	check(got == next + 1, "get");
	MPI_Win_free(&win);
}

// loaded reports whether the process has loaded a library.
static int loaded(const char *name)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[1000];
	int yes = 0;

	while (f && fgets(line, sizeof line, f))
		yes |= !!strstr(line, name);
	if (f)
		fclose(f);
	return yes;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {{"hello", hello}, {"messages", messages}, {"collective", collective}, {"onesided", onesided}};
	int all = 0, ran = 0;
	double start;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	start = MPI_Wtime();
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc > 1 && !strcmp(argv[1], parts[i].name)) {
			parts[i].run();
			ran = 1;
		}
	check(ran, "no such part");
	MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks, %s: %d errors, %.2f s%s%s\n", ranks, argc > 1 ? argv[1] : "", all, MPI_Wtime() - start,
		       loaded("libgodat") ? ", libgodat" : "", loaded("libdaplofa") ? ", libdaplofa" : "");
	MPI_Finalize();
	return all != 0;
}
