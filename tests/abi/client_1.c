/* A program of the library's first version: compiled against the header as it was then, and frozen with it.
 */
#include "client_1.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intact_1.h"

const intact_1_entry intact_1_contents[] = {
#define STRUCT(name) {#name, sizeof(name), 0, 0},
#define FIELD(type, name) {#type "." #name, sizeof(((type*)NULL)->name), offsetof(type, name), 0},
#define CONSTANT(name) {#name, 0, 0, name},
#include "contents_1.inc"
#undef STRUCT
#undef FIELD
#undef CONSTANT
};
const size_t intact_1_count = sizeof(intact_1_contents) / sizeof(intact_1_contents[0]);

static char failure[700];

#define EXPECT(condition)                                                                               \
  do {                                                                                                  \
    if (!(condition)) {                                                                                 \
      snprintf(failure, sizeof(failure), "line %d: %s: %s", __LINE__, #condition, intact_last_error()); \
      return failure;                                                                                   \
    }                                                                                                   \
  } while (0)

#define TRY(call)                        \
  do {                                   \
    const char* const why_not = call;    \
    if (why_not != NULL) return why_not; \
  } while (0)

static int32_t Clamped(float f) { return f < 0.0f ? 0 : f > 255.0f ? 255 : (int32_t)f; }

/* ----- a GEMM: 5×7 activations, 7×3 weights, u8 output by ReLU, half a residual added --------------------
 */

enum { kM = 5, kN = 3, kK = 7 };

typedef struct GemmTensors {
  uint8_t a[kM * kK];
  int8_t b[kK * kN];
  int32_t bias[kN];
  uint8_t residual[kM * kN];
  uint8_t expected[kM * kN];
} GemmTensors;

static void FillGemm(GemmTensors* t) {
  for (int i = 0; i < kM * kK; ++i) t->a[i] = (uint8_t)(i * 37 % 256);
  for (int i = 0; i < kK * kN; ++i) t->b[i] = (int8_t)(i * 53 % 256 - 128);
  for (int i = 0; i < kN; ++i) t->bias[i] = 1000 * i - 500;
  for (int i = 0; i < kM * kN; ++i) t->residual[i] = (uint8_t)(i * 16);
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      int32_t y = t->bias[n];
      for (int k = 0; k < kK; ++k) y += (t->a[m * kK + k] - 9) * t->b[k * kN + n];
      /* Powers of two: nothing is rounded but to halves, which the odd residual's scale keeps apart. */
      const float f = (float)y * 0.0078125f + (float)(t->residual[m * kN + n] - 3) * 0.5f;
      const float whole = (float)(int32_t)f;
      const float rest = f - whole;
      const int is_up = rest > 0.5f || (rest == 0.5f && (int32_t)whole % 2 != 0);
      t->expected[m * kN + n] = (uint8_t)Clamped(f < 0.0f ? 0.0f : whole + (is_up ? 1.0f : 0.0f));
    }
  }
}

static const char* RunGemm(const intact_gemm* gemm, const GemmTensors* t) {
  uint8_t c[kM * kN + 1];
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = kM;
  args.a = t->a;
  args.c = c;
  args.residual = t->residual;
  args.threads = 2;
  intact_run_info info = INTACT_RUN_INFO_INIT;
  EXPECT(intact_gemm_prepare(gemm, &args, &info) == INTACT_OK);
  EXPECT(info.output[0] == kM && info.output[1] == kN && info.output[2] == 1);
  char* const scratch = (char*)malloc(info.scratch_bytes + 1);
  args.scratch = scratch + 1;
  args.scratch_bytes = info.scratch_bytes;
  memset(c, 77, sizeof(c));
  intact_status status = intact_gemm_run(gemm, &args);
  const int is_right = memcmp(c, t->expected, sizeof(t->expected)) == 0 && c[kM * kN] == 77;
  memset(c, 77, sizeof(c));
  for (int part = 0; part < 2 && status == INTACT_OK; ++part) {
    status = intact_gemm_run_part(gemm, &args, part, 2);
  }
  free(scratch);
  EXPECT(status == INTACT_OK);
  EXPECT(is_right);
  EXPECT(memcmp(c, t->expected, sizeof(t->expected)) == 0);
  return NULL;
}

static const char* QueryGemm(const intact_gemm* gemm) {
  intact_gemm_info info = INTACT_GEMM_INFO_INIT;
  EXPECT(intact_gemm_query(gemm, &info) == INTACT_OK);
  EXPECT(info.struct_size == sizeof(info) && info.n == kN && info.k == kK);
  EXPECT(info.a_type == INTACT_U8 && info.b_type == INTACT_S8 && info.c_type == INTACT_U8);
  EXPECT(info.residual_type == INTACT_U8 && info.mode == INTACT_EXACT && info.isa != INTACT_ISA_ANY);
  EXPECT(info.kernel != NULL && strlen(info.kernel) > 0 && info.packed_bytes >= kN * kK);
  EXPECT(info.accumulator_min < info.accumulator_max);
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  EXPECT(intact_gemm_certificate(gemm, &certificate) == INTACT_OK);
  EXPECT(certificate.a_min == 0 && certificate.a_max == 255);
  EXPECT(certificate.pairs == (kK + 1) / 2 * kN && certificate.panels == 1);
  EXPECT(certificate.failing_pairs > 0);
  intact_panel_certificate panel;
  EXPECT(intact_gemm_panel_certificates(gemm, 0, 1, &panel) == INTACT_OK);
  EXPECT(panel.failing_pairs == certificate.failing_pairs);
  intact_failing_pair pairs[2];
  int64_t written = -1;
  EXPECT(intact_gemm_failing_pairs(gemm, 0, 2, pairs, &written) == INTACT_OK);
  EXPECT(written == (certificate.failing_pairs < 2 ? 1 : 2));
  EXPECT(pairs[0].sum == pairs[0].a0 * pairs[0].w0 + pairs[0].a1 * pairs[0].w1);
  EXPECT(pairs[0].sum > 32767 || pairs[0].sum < -32768);
  return NULL;
}

static const char* UseGemm(void) {
  GemmTensors t;
  FillGemm(&t);
  const float scale = 0.0078125f;
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.n = kN;
  desc.k = kK;
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  linear.c_type = INTACT_U8;
  linear.a_zero_point = 9;
  linear.activation = INTACT_ACTIVATION_RELU;
  linear.bias_s32 = t.bias;
  linear.scales = &scale;
  linear.scale_count = 1;
  linear.residual_type = INTACT_U8;
  linear.residual_scale = 0.5f;
  linear.residual_zero_point = 3;
  intact_gemm* gemm = NULL;
  EXPECT(intact_gemm_create(&desc, &linear, t.b, &gemm) == INTACT_OK);
  TRY(RunGemm(gemm, &t));
  TRY(QueryGemm(gemm));

  size_t size = 0;
  EXPECT(intact_gemm_save_memory(gemm, NULL, &size) == INTACT_OK && size > 0);
  void* const image = aligned_alloc(64, (size + 63) / 64 * 64);
  const intact_status saved = intact_gemm_save_memory(gemm, image, &size);
  intact_gemm_destroy(gemm);
  intact_gemm* loaded = NULL;
  const intact_status status =
      saved == INTACT_OK ? intact_gemm_load_memory(image, size, INTACT_ISA_ANY, &loaded) : saved;
  const char* why_not = status == INTACT_OK ? RunGemm(loaded, &t) : "the GEMM's image does not load";
  intact_gemm_destroy(loaded);
  free(image);
  return why_not;
}

/* ----- convolutions: 3×3, padded by 1, stride 1×2, of 3 channels to 4, s32 output -------------------------
 */

enum { kHeight = 6, kWidth = 7, kChannels = 3, kOutputs = 4, kOutputWidth = 4 };

typedef struct ConvTensors {
  int8_t a[2 * kHeight * kWidth * kChannels];
  int8_t b[kOutputs * 9 * kChannels];
  int32_t expected[2 * kHeight * kOutputWidth * kOutputs];
} ConvTensors;

static int32_t Contribution(const ConvTensors* t, int image, int y, int x, int tap, int o) {
  int32_t sum = 0;
  if (y < 0 || y >= kHeight || x < 0 || x >= kWidth) return 0;
  for (int c = 0; c < kChannels; ++c) {
    const int a = t->a[((image * kHeight + y) * kWidth + x) * kChannels + c];
    sum += (a + 5) * t->b[(o * 9 + tap) * kChannels + c];
  }
  return sum;
}

static void FillConv(ConvTensors* t) {
  for (size_t i = 0; i < sizeof(t->a); ++i) t->a[i] = (int8_t)((int)(i * 91 % 256) - 128);
  for (size_t i = 0; i < sizeof(t->b); ++i) t->b[i] = (int8_t)((int)(i * 59 % 256) - 128);
  for (int pixel = 0; pixel < 2 * kHeight * kOutputWidth; ++pixel) {
    const int image = pixel / (kHeight * kOutputWidth);
    const int y = pixel / kOutputWidth % kHeight;
    const int x = pixel % kOutputWidth;
    for (int o = 0; o < kOutputs; ++o) {
      int32_t sum = 0;
      for (int tap = 0; tap < 9; ++tap) {
        sum += Contribution(t, image, y - 1 + tap / 3, x * 2 - 1 + tap % 3, tap, o);
      }
      t->expected[pixel * kOutputs + o] = sum;
    }
  }
}

static const char* RunConv(const intact_conv* conv, const ConvTensors* t, int is_open) {
  int32_t c[2 * kHeight * kOutputWidth * kOutputs];
  intact_conv_args args = INTACT_CONV_ARGS_INIT;
  args.batch = 2;
  args.a = t->a;
  args.c = c;
  args.threads = 1;
  if (is_open) {
    args.input[0] = kHeight;
    args.input[1] = kWidth;
  }
  intact_run_info info = INTACT_RUN_INFO_INIT;
  EXPECT(intact_conv_prepare(conv, &args, &info) == INTACT_OK);
  EXPECT(info.output[0] == kHeight && info.output[1] == kOutputWidth && info.output[2] == 1);
  char* const scratch = (char*)malloc(info.scratch_bytes + 1);
  args.scratch = scratch + 1;
  args.scratch_bytes = info.scratch_bytes;
  memset(c, 77, sizeof(c));
  intact_status status = intact_conv_run(conv, &args);
  const int is_right = memcmp(c, t->expected, sizeof(c)) == 0;
  memset(c, 77, sizeof(c));
  args.scratch_bytes = info.part_scratch_bytes;
  for (int part = 0; part < 3 && status == INTACT_OK; ++part) {
    status = intact_conv_run_part(conv, &args, part, 3);
  }
  free(scratch);
  EXPECT(status == INTACT_OK);
  EXPECT(is_right);
  EXPECT(memcmp(c, t->expected, sizeof(c)) == 0);
  return NULL;
}

static const char* QueryConv(const intact_conv* conv, int is_open) {
  intact_conv_info info = INTACT_CONV_INFO_INIT;
  EXPECT(intact_conv_query(conv, &info) == INTACT_OK);
  EXPECT(info.struct_size == sizeof(info) && info.spatial_dims == 2);
  EXPECT(info.a_type == INTACT_S8 && info.b_type == INTACT_S8 && info.c_type == INTACT_S32);
  EXPECT(info.residual_type == INTACT_TYPE_NONE && info.mode == INTACT_EXACT && info.isa != INTACT_ISA_ANY);
  EXPECT(info.input_channels == kChannels && info.output_channels == kOutputs);
  EXPECT(info.input[0] == (is_open ? INTACT_ANY_EXTENT : kHeight) && info.input[2] == 1);
  EXPECT(info.output[1] == (is_open ? INTACT_ANY_EXTENT : kOutputWidth) && info.output[2] == 1);
  EXPECT(info.kernel != NULL && strlen(info.kernel) > 0);
  EXPECT(info.packed_bytes >= kOutputs * 9 * kChannels && info.accumulator_min < info.accumulator_max);
  intact_certificate certificate = INTACT_CERTIFICATE_INIT;
  EXPECT(intact_conv_certificate(conv, 0, &certificate) == INTACT_OK);
  EXPECT(certificate.a_min == -128 && certificate.a_max == 127);
  EXPECT(certificate.pairs == kOutputs * 9 * 2 && certificate.failing_pairs > 0);
  intact_conv_failing_pair pair;
  int64_t written = -1;
  EXPECT(intact_conv_failing_pairs(conv, 0, 0, 1, &pair, &written) == INTACT_OK && written == 1);
  EXPECT(pair.channel == 0 && pair.tap[2] == 0);
  EXPECT(pair.sum == pair.a0 * pair.w0 + pair.a1 * pair.w1);
  EXPECT(pair.sum > 32767 || pair.sum < -32768);
  return NULL;
}

static const char* UseConv(int is_open) {
  ConvTensors t;
  FillConv(&t);
  intact_conv_desc desc = INTACT_CONV_DESC_INIT;
  desc.input_channels = kChannels;
  desc.output_channels = kOutputs;
  desc.input[0] = is_open ? INTACT_ANY_EXTENT : kHeight;
  desc.input[1] = is_open ? INTACT_ANY_EXTENT : kWidth;
  for (int i = 0; i < 2; ++i) desc.kernel[i] = 3;
  for (int i = 0; i < 2; ++i) desc.pad_begin[i] = desc.pad_end[i] = 1;
  desc.stride[1] = 2;
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  linear.a_type = INTACT_S8;
  linear.a_zero_point = -5;
  intact_conv* conv = NULL;
  EXPECT(intact_conv_create(&desc, &linear, t.b, &conv) == INTACT_OK);
  TRY(RunConv(conv, &t, is_open));
  TRY(QueryConv(conv, is_open));

  size_t size = 0;
  EXPECT(intact_conv_save_memory(conv, NULL, &size) == INTACT_OK && size > 0);
  char* const image = (char*)malloc(size);
  const intact_status saved = intact_conv_save_memory(conv, image, &size);
  intact_conv_destroy(conv);
  intact_conv* loaded = NULL;
  const intact_status status =
      saved == INTACT_OK ? intact_conv_load_memory(image, size, INTACT_ISA_AVX2, &loaded) : saved;
  free(image);
  EXPECT(status == INTACT_OK);
  TRY(RunConv(loaded, &t, is_open));
  TRY(QueryConv(loaded, is_open));
  intact_conv_destroy(loaded);
  return NULL;
}

/* ----- the rest -------------------------------------------------------------------------------------------
 */

static const char* UseTheRest(void) {
  EXPECT(strlen(intact_version()) > 0);
  EXPECT(strcmp(intact_isa_name(INTACT_ISA_AVX2), "avx2") == 0);
  EXPECT(strlen(intact_status_name(INTACT_OVERFLOW)) > 0);
  EXPECT(intact_isa_available(INTACT_ISA_ANY) == 0);
  intact_gemm* gemm = NULL;
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  const int8_t b = 1;
  EXPECT(intact_gemm_create(&desc, NULL, &b, &gemm) == INTACT_INVALID_ARGUMENT && gemm == NULL);
  EXPECT(strstr(intact_last_error(), "n is 0") != NULL);
  EXPECT(intact_gemm_load("/nowhere/intact", INTACT_ISA_ANY, &gemm) == INTACT_INVALID_ARGUMENT);
  intact_conv* conv = NULL;
  EXPECT(intact_conv_load("/nowhere/intact", INTACT_ISA_ANY, &conv) == INTACT_INVALID_ARGUMENT);
  intact_gemm_destroy(NULL);
  intact_conv_destroy(NULL);
  desc.n = desc.k = 1;
  EXPECT(intact_gemm_create(&desc, NULL, &b, &gemm) == INTACT_OK);
  EXPECT(intact_gemm_save(gemm, "/nowhere/intact") == INTACT_INVALID_ARGUMENT);
  intact_gemm_destroy(gemm);
  return NULL;
}

const char* intact_1_run(void) {
  TRY(UseGemm());
  TRY(UseConv(0));
  TRY(UseConv(1));
  return UseTheRest();
}
