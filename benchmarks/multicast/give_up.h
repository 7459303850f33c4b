/* End of a program that cannot go on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void give_up(const char *problem)
{
    fprintf(stderr, "%s: %s\n", problem, strerror(errno));
    exit(1);
}
