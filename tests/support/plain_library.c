/* A shared object that is not a plug-in. */
int intact_plain_library(void);
int intact_plain_library(void) { return 0; }
