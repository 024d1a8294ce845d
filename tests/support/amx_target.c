/* A plug-in with instructions of AMX, compiled for AMX: u8×s8→s32 in blocks of 16×16. Options plant a fault:
 * "unconfigured" configures no tiles, "unsigned" reads B as u8, "unknown" has an instruction that no CPU has, and
 * "trap" calls abort by UD2. */
#include <immintrin.h>
#include <intact/target.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kRows = 16, kColumns = 16, kDepth = 64 };

static char planted[32];

static int Has(const char* fault) { return strcmp(planted, fault) == 0; }

static void Configure(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {1, 0, {0}, {64, 64, 64}, {16, 16, 16}};
  _tile_loadconfig(&config);
}

static void Block(const intact_gemm_desc* desc, int32_t zero_point, const int8_t* b,
                  const intact_gemm_args* args, int64_t row, int64_t column) {
  const uint8_t* const activations = args->a;
  int32_t sums[kRows][kColumns];
  int32_t of_columns[kColumns] = {0};
  _tile_zero(0);
  for (int64_t depth = 0; depth < desc->k; depth += kDepth) {
    uint8_t a_tile[kRows][kDepth] = {{0}};
    int8_t b_tile[kDepth / 4][kColumns][4] = {{{0}}};
    for (int64_t k = depth; k < depth + kDepth && k < desc->k; ++k) {
      for (int64_t i = row; i < row + kRows && i < args->m; ++i) {
        a_tile[i - row][k - depth] = activations[i * args->a_stride + k];
      }
      for (int64_t n = column; n < column + kColumns && n < desc->n; ++n) {
        const int8_t weight = b[k * desc->n + n];
        b_tile[(k - depth) / 4][n - column][k % 4] = weight;
        of_columns[n - column] += weight;
      }
    }
    _tile_loadd(1, a_tile, kDepth);
    _tile_loadd(2, b_tile, kColumns * 4);
    if (Has("unsigned")) {
      _tile_dpbuud(0, 1, 2);
    } else {
      _tile_dpbusd(0, 1, 2);
    }
  }
  _tile_stored(0, sums, kColumns * 4);
  int32_t* const output = args->c;
  for (int64_t i = row; i < row + kRows && i < args->m; ++i) {
    for (int64_t n = column; n < column + kColumns && n < desc->n; ++n) {
      output[i * args->c_stride + n] = sums[i - row][n - column] - zero_point * of_columns[n - column];
    }
  }
}

static intact_status RunGemm(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                             const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  (void)message;
  if (Has("unknown")) __asm__ volatile(".byte 0xc4, 0xe2, 0x78, 0x5f, 0xc0");
  if (Has("trap")) __builtin_trap();
  if (!Has("unconfigured")) Configure();
  for (int64_t row = 0; row < args->m; row += kRows) {
    for (int64_t column = 0; column < desc->n; column += kColumns) {
      Block(desc, linear->a_zero_point, b, args, row, column);
    }
  }
  _tile_release();
  return INTACT_OK;
}

static const intact_target kTarget = {
    sizeof(intact_target),
    "amx",
    INTACT_TARGET_BIT(INTACT_TARGET_GEMM) | INTACT_TARGET_BIT(INTACT_TARGET_A_U8) |
        INTACT_TARGET_BIT(INTACT_TARGET_B_S8) | INTACT_TARGET_BIT(INTACT_TARGET_C_S32) |
        INTACT_TARGET_BIT(INTACT_TARGET_A_ZERO_POINT) | INTACT_TARGET_BIT(INTACT_TARGET_STRIDES),
    "exact",
    RunGemm,
    NULL,
    NULL,
    0,
    0};

const intact_target* intact_target_open(uint32_t abi, const char* options,
                                        char message[INTACT_TARGET_MESSAGE_BYTES]) {
  (void)abi;
  (void)message;
  snprintf(planted, sizeof(planted), "%s", options);
  /* Linux grants tiles on request. The emulator needs no permission, so a refusal is no error. */
  (void)syscall(SYS_arch_prctl, 0x1023, 18);
  return &kTarget;
}
