/* A user's program, to run under valgrind: creates plans of many kinds, runs them in buffers from malloc() of
 * exactly the size needed, and branches on every byte of their outputs.
 *
 * The argument names a fault of the user, which valgrind must report: "none"; "small_c", "small_a",
 * "small_weights" (the buffer lacks its last byte); "small_scratch" (it lacks its last 128 bytes, some for
 * alignment); or "unset_a" (it is never written). */
#include <intact/bound.h>
#include <intact/intact.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* fault = "none";
static unsigned digest = 0;
static volatile int sevens = 0;

static int has_fault(const char* name) { return strcmp(fault, name) == 0; }

static size_t less_one(size_t bytes, const char* fault_that_shortens) {
  return has_fault(fault_that_shortens) ? bytes - 1 : bytes;
}

static unsigned char* buffer(size_t bytes) {
  unsigned char* made = malloc(bytes);
  if (made == NULL) exit(3);
  return made;
}

static unsigned char* filled(size_t bytes, unsigned step) {
  unsigned char* made = buffer(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = (unsigned char)((i * step + i / 7) % 251);
  return made;
}

static void expect(intact_status status) {
  if (status == INTACT_OK) return;
  fprintf(stderr, "%s\n", intact_last_error());
  exit(3);
}

static size_t size_of(int32_t type) { return type == INTACT_S32 || type == INTACT_F32 ? 4 : 1; }

static void look_at(const unsigned char* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    digest = (digest ^ bytes[i]) * 16777619u;
    if (bytes[i] == 77) sevens = sevens + 1; /* a branch: volatile is not to be written without it */
  }
}

/* The kinds of arithmetic, one after the other. */
static intact_linear_desc next_linear(unsigned number) {
  static const int32_t types[] = {INTACT_S32, INTACT_U8, INTACT_F32, INTACT_S8};
  static const float scale = 0.0078125f;
  static const int32_t weight_zero_point = 5;
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  linear.a_type = number / 4 % 3 == 1 ? INTACT_S8 : INTACT_U8;
  linear.b_type = number / 4 % 5 == 2 ? INTACT_U8 : INTACT_S8;
  linear.c_type = types[number % 4];
  linear.mode = number / 4 % 7 == 3 ? INTACT_SATURATING : INTACT_EXACT;
  linear.a_zero_point = (int32_t)(number % 3);
  if (number % 5 == 1) {
    linear.b_zero_points = &weight_zero_point;
    linear.b_zero_point_count = 1;
  }
  if (linear.c_type != INTACT_S32) {
    linear.scales = &scale;
    linear.scale_count = 1;
    linear.activation = number / 4 % 2 == 1 ? INTACT_ACTIVATION_RELU : INTACT_ACTIVATION_NONE;
    if (number % 7 == 2) {
      linear.residual_type = linear.c_type;
      linear.residual_scale = 0.5f;
    }
  }
  if (number % 11 == 4) {
    linear.a_min = linear.a_zero_point = linear.a_type == INTACT_S8 ? -128 : 0;
    linear.a_max = linear.a_min + 64;
  }
  return linear;
}

static unsigned char* activations(size_t bytes) {
  return has_fault("unset_a") ? buffer(bytes) : filled(less_one(bytes, "small_a"), 91);
}

/* The residual lies where C is to be. */
static unsigned char* output(size_t bytes, int32_t residual) {
  const size_t there = less_one(bytes, "small_c");
  return residual == INTACT_TYPE_NONE ? buffer(there) : filled(there, 3);
}

/* Of the caller's own for some runs, else none. */
static unsigned char* own_scratch(unsigned number, size_t bytes) {
  if (has_fault("small_scratch")) return bytes > 128 ? buffer(bytes - 128) : NULL;
  return number % 4 == 1 ? buffer(bytes) : NULL;
}

static void run_gemm(unsigned number, int64_t m, int64_t n, int64_t k) {
  intact_linear_desc linear = next_linear(number);
  intact_gemm_desc desc = INTACT_GEMM_DESC_INIT;
  desc.n = n;
  desc.k = k;
  desc.usual_m = number % 3 == 2 ? m : 0;
  unsigned char* weights = filled(less_one((size_t)(n * k), "small_weights"), 37);
  intact_gemm* gemm = NULL;
  expect(intact_gemm_create(&desc, &linear, weights, &gemm));
  free(weights);
  const size_t bytes = (size_t)(m * n) * size_of(linear.c_type);
  unsigned char* a = activations((size_t)(m * k));
  unsigned char* c = output(bytes, linear.residual_type);
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = m;
  args.a = a;
  args.c = c;
  args.residual = linear.residual_type == INTACT_TYPE_NONE ? NULL : c;
  args.threads = 1 + (int32_t)(number % 2);
  intact_run_info info = INTACT_RUN_INFO_INIT;
  expect(intact_gemm_prepare(gemm, &args, &info));
  unsigned char* scratch = own_scratch(number, info.scratch_bytes);
  args.scratch = scratch;
  args.scratch_bytes = scratch == NULL ? 0 : info.scratch_bytes;
  if (number % 3 == 0) {
    intact_bound* bound = NULL;
    expect(intact_gemm_bind(gemm, &args, &bound));
    expect(intact_bound_run(bound));
    intact_bound_destroy(bound);
  } else {
    expect(intact_gemm_run(gemm, &args));
  }
  look_at(c, bytes);
  free(scratch);
  free(c);
  free(a);
  intact_gemm_destroy(gemm);
}

struct layer {
  int64_t in, channels, out, groups, kernel, stride, pad;
  int32_t transposed;
};

static void run_conv(unsigned number, const struct layer* layer) {
  intact_linear_desc linear = next_linear(number);
  intact_conv_desc desc = INTACT_CONV_DESC_INIT;
  desc.transposed = layer->transposed;
  desc.input_channels = layer->channels;
  desc.output_channels = layer->out;
  desc.groups = layer->groups;
  for (int i = 0; i < 2; ++i) {
    desc.input[i] = layer->in + i;
    desc.kernel[i] = layer->kernel;
    desc.stride[i] = layer->stride;
    desc.pad_begin[i] = desc.pad_end[i] = layer->pad;
  }
  const int64_t depth = layer->kernel * layer->kernel * layer->channels / layer->groups;
  unsigned char* weights = filled(less_one((size_t)(layer->out * depth), "small_weights"), 37);
  intact_conv* conv = NULL;
  expect(intact_conv_create(&desc, &linear, weights, &conv));
  free(weights);
  intact_conv_args args = INTACT_CONV_ARGS_INIT;
  intact_run_info info = INTACT_RUN_INFO_INIT;
  args.batch = 1;
  args.threads = 1 + (int32_t)(number % 2);
  expect(intact_conv_prepare(conv, &args, &info));
  const size_t bytes = (size_t)(info.output[0] * info.output[1] * layer->out) * size_of(linear.c_type);
  unsigned char* a = activations((size_t)(layer->in * (layer->in + 1) * layer->channels));
  unsigned char* c = output(bytes, linear.residual_type);
  unsigned char* scratch = own_scratch(number, info.scratch_bytes);
  args.a = a;
  args.c = c;
  args.residual = linear.residual_type == INTACT_TYPE_NONE ? NULL : c;
  args.scratch = scratch;
  args.scratch_bytes = scratch == NULL ? 0 : info.scratch_bytes;
  if (number % 3 == 0) {
    intact_bound* bound = NULL;
    expect(intact_conv_bind(conv, &args, &bound));
    expect(intact_bound_run(bound));
    intact_bound_destroy(bound);
  } else {
    expect(intact_conv_run(conv, &args));
  }
  look_at(c, bytes);
  free(scratch);
  free(c);
  free(a);
  intact_conv_destroy(conv);
}

int main(int argc, char** argv) {
  static const int64_t rows[] = {1, 3, 8, 17, 33}, columns[] = {1, 7, 18, 33}, depths[] = {3, 64, 125};
  static const struct layer layers[] = {
      {9, 3, 17, 1, 3, 2, 1, 0},  {6, 8, 18, 1, 3, 1, 1, 0},   {7, 33, 5, 1, 1, 1, 0, 0},
      {5, 12, 24, 3, 3, 1, 1, 0}, {7, 19, 19, 19, 3, 1, 1, 0}, {6, 32, 32, 32, 3, 2, 1, 0},
      {4, 5, 9, 1, 3, 2, 1, 1},
  };
  if (argc > 1) fault = argv[1];
  unsigned number = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    for (size_t j = 0; j < sizeof columns / sizeof *columns; ++j) {
      for (size_t l = 0; l < sizeof depths / sizeof *depths; ++l) {
        run_gemm(number++, rows[i], columns[j], depths[l]);
      }
    }
  }
  for (size_t i = 0; i < sizeof layers / sizeof *layers; ++i) {
    for (int kind = 0; kind < 5; ++kind) run_conv(number++, &layers[i]);
  }
  printf("%08x\n", digest);
  return 0;
}
