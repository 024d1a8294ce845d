#include <intact/intact.h>
#include <stdio.h>

int main(void) {
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  intact_gemm* gemm = NULL;
  int32_t sum = 0;
  desc.n = 1, desc.k = 2;
  args.m = 1, args.a = (const uint8_t[]){255, 255}, args.c = &sum;
  if (intact_gemm_create(&desc, NULL, (const int8_t[]){127, 127}, &gemm) != INTACT_OK ||
      intact_gemm_run(gemm, &args) != INTACT_OK) {
    return fprintf(stderr, "%s\n", intact_last_error()), 1;
  }
  intact_gemm_destroy(gemm);
  return printf("%d\n", (int)sum) < 0; /* 64770: kernels that saturate say 32767 */
}
