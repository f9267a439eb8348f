/* The sandbox process of a pod: holds its namespaces and reaps orphans.
 * With any argument it exits at once: kubeadm's health check runs the pause image with "-v". */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(int signal_number) { (void)signal_number; _exit(0); }

static void reap(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0) { }
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) return 0;
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
