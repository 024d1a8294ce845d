/* A template for targets of `intact verify grouped --target`: products with u4 weights in groups
 * (intact/grouped.h), by three loops.
 *
 *   cc -O2 -shared -fPIC -o mine.so grouped_target.c -lm     (with -I include if intact is not installed)
 *   intact verify grouped --quick --target ./mine.so
 *
 * target_template.c is the template for GEMMs. A target may have both. */
#include <intact/target.h>
#include <math.h>
#include <stdio.h>

static int32_t Activation(const intact_grouped_desc* desc, const void* a, int64_t i) {
  return desc->a_type == INTACT_S8 ? ((const int8_t*)a)[i] : ((const uint8_t*)a)[i];
}

static intact_status RunGrouped(const intact_grouped_desc* desc, const void* b,
                                const intact_grouped_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  const int64_t depth = desc->group ? desc->group : desc->k, groups = (desc->k + depth - 1) / depth;
  const int by_groups = desc->a_granularity == INTACT_GRANULARITY_GROUPS;
  const float* scales = desc->b_scales; /* n×groups, dense: the target declares no other layout */
  const uint8_t *weights = b, *points = desc->b_zero_points;
  if (desc->scale_type != INTACT_F32) { /* a limit that feature bits cannot express: refuse with a message */
    snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "scales that are not f32");
    return INTACT_UNSUPPORTED;
  }
  for (int64_t m = 0; m < args->m; ++m) {
    for (int64_t n = 0; n < desc->n; ++n) {
      float f = 0;
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t row = by_groups ? m * groups + g : m, end = (g + 1) * depth;
        const int32_t za = args->a_zero_points ? args->a_zero_points[row] : 0;
        const int32_t zb = points ? points[n * groups + g] : 8;
        int32_t sum = 0;
        for (int64_t k = g * depth; k < (end < desc->k ? end : desc->k); ++k) {
          const int32_t w = weights[n * desc->b_stride_n + k / 2] >> (k % 2 * 4) & 15;
          sum += (Activation(desc, args->a, m * args->a_stride + k) - za) * (w - zb);
        }
        f = fmaf((float)sum,
                 by_groups ? args->a_scales[row] * scales[n * groups + g] : scales[n * groups + g], f);
      }
      if (!by_groups) f *= args->a_scales[m];
      ((float*)args->c)[m * args->c_stride + n] = isnan(f) ? -INFINITY : f;
    }
  }
  return INTACT_OK;
}

static const intact_target kTarget = {
    sizeof(intact_target),
    "mine 0.1",
    INTACT_TARGET_BIT(INTACT_TARGET_GROUPED) | INTACT_TARGET_BIT(INTACT_TARGET_A_U8) |
        INTACT_TARGET_BIT(INTACT_TARGET_A_S8) | INTACT_TARGET_BIT(INTACT_TARGET_A_ZERO_POINT) |
        INTACT_TARGET_BIT(INTACT_TARGET_ROW_QUANTIZATION) | INTACT_TARGET_BIT(INTACT_TARGET_B_U4) |
        INTACT_TARGET_BIT(INTACT_TARGET_B_ZERO_POINTS) | INTACT_TARGET_BIT(INTACT_TARGET_SCALE_ZERO) |
        INTACT_TARGET_BIT(INTACT_TARGET_C_F32) | INTACT_TARGET_BIT(INTACT_TARGET_STRIDES),
    "exact", /* or "any": then the verifier identifies the arithmetic */
    NULL,
    NULL,
    RunGrouped,
    0,
    0};

const intact_target* intact_target_open(uint32_t abi, const char* options,
                                        char message[INTACT_TARGET_MESSAGE_BYTES]) {
  (void)options; /* the text after the file's name: --target ./mine.so:options */
  if (abi == INTACT_TARGET_ABI) return &kTarget;
  snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "made for version %d of the ABI", INTACT_TARGET_ABI);
  return NULL;
}
