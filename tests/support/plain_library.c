/* A shared object that is no plug-in. */
int intact_plain_library(void);
int intact_plain_library(void) { return 0; }
