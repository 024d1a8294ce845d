/* client_1.c as a program, linked to the shared library as programs are. */
#include <stdio.h>

#include "client_1.h"

int main(void) {
  const char* const why_not = intact_1_run();
  if (why_not != NULL) fprintf(stderr, "client_1: %s\n", why_not);
  return why_not == NULL ? 0 : 1;
}
