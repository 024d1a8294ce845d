/* What client_1.c, a C program's file compiled against the frozen header, shows to abi_test.cc, which is
 * compiled against today's. Frozen as well. */
#ifndef INTACT_TESTS_ABI_CLIENT_1_H_
#define INTACT_TESTS_ABI_CLIENT_1_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A line of contents_1.inc. */
typedef struct intact_1_entry {
  const char* name; /**< "intact_gemm_desc", "intact_gemm_desc.n" or "INTACT_U8" */
  size_t size;      /**< of a struct or a field */
  size_t offset;    /**< of a field */
  long long value;  /**< of a constant */
} intact_1_entry;

extern const intact_1_entry intact_1_contents[];
extern const size_t intact_1_count;

/** Uses a GEMM and convolutions as a program does: NULL, or what went wrong. */
const char* intact_1_run(void);

#ifdef __cplusplus
}
#endif
#endif /* INTACT_TESTS_ABI_CLIENT_1_H_ */
