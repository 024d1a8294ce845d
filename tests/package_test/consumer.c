/* Links the installed library through its C ABI. */
#include <intact/intact.h>
#include <stdio.h>

int main(void) {
  const uint8_t a[2 * 3] = {255, 255, 1, 0, 2, 255};
  const int8_t b[3 * 2] = {127, -128, 127, 3, -1, 5};
  const int32_t expected[2 * 2] = {64769, -31870, -1, 1281};
  int32_t c[2 * 2] = {0};

  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.n = 2;
  desc.k = 3;
  intact_gemm* gemm = NULL;
  if (intact_gemm_create(&desc, NULL, b, &gemm) != INTACT_OK) {
    fprintf(stderr, "intact_gemm_create: %s\n", intact_last_error());
    return 1;
  }
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = 2;
  args.a = a;
  args.c = c;
  const intact_status status = intact_gemm_run(gemm, &args);
  intact_gemm_destroy(gemm);
  if (status != INTACT_OK) {
    fprintf(stderr, "intact_gemm_run: %s\n", intact_last_error());
    return 1;
  }
  for (int i = 0; i < 4; ++i) {
    if (c[i] != expected[i]) {
      fprintf(stderr, "c[%d] is %d, expected %d\n", i, (int)c[i], (int)expected[i]);
      return 1;
    }
  }
  return 0;
}
