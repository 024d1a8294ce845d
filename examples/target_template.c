/* A template for targets of `intact verify --target`: GEMM of u8 activations and s8 weights to s32, by three
 * loops.
 *
 *   cc -O2 -shared -fPIC -o mine.so target_template.c     (with -I include if intact is not installed)
 *   intact verify sweep --target ./mine.so
 *
 * 1. Replace the loops by your kernel. 2. Set the bits of its features. 3. Set its name. */
#include <intact/target.h>
#include <stdio.h>

static intact_status RunGemm(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                             const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  const uint8_t* activations = args->a;
  const int8_t* weights = b; /* k×n, dense: the target declares no other layout */
  int32_t* output = args->c;
  if (desc->k > 1 << 16) { /* a limit that feature bits cannot express: refuse with a message */
    snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "depths beyond 65536");
    return INTACT_UNSUPPORTED;
  }
  for (int64_t m = 0; m < args->m; ++m) {
    for (int64_t n = 0; n < desc->n; ++n) {
      int32_t sum = 0;
      for (int64_t k = 0; k < desc->k; ++k) {
        sum += (activations[m * args->a_stride + k] - linear->a_zero_point) * weights[k * desc->n + n];
      }
      output[m * args->c_stride + n] = sum;
    }
  }
  return INTACT_OK;
}

static const intact_target kTarget = {
    sizeof(intact_target),
    "mine 0.1",
    INTACT_TARGET_BIT(INTACT_TARGET_GEMM) | INTACT_TARGET_BIT(INTACT_TARGET_A_U8) |
        INTACT_TARGET_BIT(INTACT_TARGET_B_S8) | INTACT_TARGET_BIT(INTACT_TARGET_C_S32) |
        INTACT_TARGET_BIT(INTACT_TARGET_A_ZERO_POINT) | INTACT_TARGET_BIT(INTACT_TARGET_STRIDES),
    "exact", /* or "any": then the verifier identifies the arithmetic */
    RunGemm,
    NULL, /* no convolutions */
    NULL, /* no grouped weights: grouped_target.c has them */
    0,    /* convolutions have no features of their own */
    0     /* nor have grouped weights */
};

const intact_target* intact_target_open(uint32_t abi, const char* options,
                                        char message[INTACT_TARGET_MESSAGE_BYTES]) {
  (void)options; /* the text after the file's name: --target ./mine.so:options */
  if (abi == INTACT_TARGET_ABI) return &kTarget;
  snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "made for version %d of the ABI", INTACT_TARGET_ABI);
  return NULL;
}
