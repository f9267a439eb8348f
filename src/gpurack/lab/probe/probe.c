/* The test workload of the lab: shows what the kernel gave it, then sleeps until it is told to stop.
 *
 *   probe          print this process's status and environment of interest, then sleep
 *   probe status   print and exit: the view from `kubectl exec`
 *   probe false    exit 1: a container that fails
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void stop(int signal_number) { (void)signal_number; _exit(0); }

static int show(const char *path) {
    char buffer[4096];
    ssize_t count;
    int file = open(path, O_RDONLY);
    if (file < 0) { perror(path); return 1; }
    while ((count = read(file, buffer, sizeof buffer)) > 0)
        if (write(STDOUT_FILENO, buffer, (size_t)count) != count) return 1;
    close(file);
    return count < 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "false") == 0) return 1;
    int failed = show("/proc/self/status");
    const char *devices = getenv("GPURACK_SIMULATED_GPUS");
    printf("Simulated_gpus:\t%s\n", devices ? devices : "");
    fflush(stdout);
    if (argc > 1) return failed;
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    for (;;) pause();
}
