// A plug-in (intact/target.h) whose kernels are a Python class: --target python_target.so:FILE:CLASS. It
// starts $INTACT_PYTHON, which runs intact/_target.py, and sends each problem through a socket: first the
// structs, byte by byte, then dense arrays, each after its length in bytes. If the process ends, that is a
// finding, and the next problem starts a new process.
#define _GNU_SOURCE
#include <errno.h>
#include <intact/target.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/signal_name.h"

static char* file_and_class;
static pid_t child = -1;
static int to_child = -1;  // a socket; -1: no child

static int Write(const void* data, size_t size) {
  const char* at = data;
  while (size > 0) {
    const ssize_t count = send(to_child, at, size, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return 0;
    at += count;
    size -= (size_t)count;
  }
  return 1;
}

static int Read(void* data, size_t size) {
  char* at = data;
  while (size > 0) {
    const ssize_t count = read(to_child, at, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return 0;
    at += count;
    size -= (size_t)count;
  }
  return 1;
}

// Sends an array of `count` elements of `size` bytes. NULL is sent as an empty array.
static int Array(const void* data, int64_t count, int64_t size) {
  const int64_t bytes = data == NULL ? 0 : count * size;
  return Write(&bytes, sizeof bytes) && Write(data, (size_t)bytes);
}

static int64_t ElementSize(int32_t type) {
  return type == INTACT_U8 || type == INTACT_S8 ? 1 : type == INTACT_S32 || type == INTACT_F32 ? 4 : 2;
}

static int Linear(const intact_linear_desc* linear, int64_t columns) {
  return Write(linear, sizeof *linear) && Array(linear->b_zero_points, linear->b_zero_point_count, 4) &&
         Array(linear->bias_s32, columns, 4) && Array(linear->bias_f32, columns, 4) &&
         Array(linear->scales, linear->scale_count, 4);
}

// Waits two seconds for the child to end, then kills it. Returns its status from waitpid(), or -1.
static int Stop(void) {
  int status = 0, i;
  close(to_child);
  to_child = -1;
  if (child < 0) return -1;
  for (i = 0; i < 2000; ++i) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended != 0) return ended == child ? status : -1;
    usleep(1000);
  }
  kill(child, SIGKILL);
  return waitpid(child, &status, 0) == child ? status : -1;
}

// Handles a closed socket: the child has ended or is about to. Reports how it ended.
static intact_status Gone(char* message) {
  const int status = Stop();
  if (status != -1 && WIFSIGNALED(status)) {
    const char* const name = intact_signal_name(WTERMSIG(status));
    snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "the Python process was ended by %s (%d)",
             name == NULL ? "a signal" : name, WTERMSIG(status));
  } else {
    snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "the Python process ended with status %d",
             status == -1 ? -1 : WEXITSTATUS(status));
  }
  return INTACT_CODEGEN_FAILED;
}

// Reads Python's answer: a status, a text of 256 bytes, and C if the status is OK.
static intact_status Answer(void* c, int64_t bytes, char* message) {
  int64_t status = 0;
  if (!Read(&status, sizeof status) || !Read(message, INTACT_TARGET_MESSAGE_BYTES)) return Gone(message);
  message[INTACT_TARGET_MESSAGE_BYTES - 1] = '\0';
  if (status == INTACT_OK && !Read(c, (size_t)bytes)) return Gone(message);
  return (intact_status)status;
}

// Not with -m: Python would warn that the package already imports the module. A Python that lacks a module answers
// as main() does if it refuses the class.
static const char kScript[] =
    "import sys\n"
    "try:\n"
    "    from intact._target import main\n"
    "except ImportError as error:\n"
    "    text = f\"{sys.executable} cannot load intact: {error}; install intact's wheel there with pip\"\n"
    "    sys.stdout.buffer.write((1).to_bytes(8, 'little') + text.encode()[:255].ljust(256, b'\\0'))\n"
    "    sys.exit(1)\n"
    "main()\n";

// The child: replaces this process by Python. The last colon separates FILE from CLASS.
static void Live(int socket) {
  char* const file = file_and_class;
  char* const colon = strrchr(file, ':');
  *colon = '\0';
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(socket, STDIN_FILENO);
  dup2(socket, STDOUT_FILENO);
  const char* const python = getenv("INTACT_PYTHON") ? getenv("INTACT_PYTHON") : "python3";
  execlp(python, python, "-c", kScript, file, colon + 1, (char*)NULL);
  fprintf(stderr, "%s: %s\n", python, strerror(errno));
  _exit(1);
}

// The class as Python describes it.
static struct {
  uint64_t supports, conv_supports, grouped_supports;
  char name[INTACT_TARGET_MESSAGE_BYTES], arithmetic[INTACT_TARGET_MESSAGE_BYTES];
} introduction;

// Starts Python unless it is running. Returns 0, with a message, if it does not start or refuses the class.
static int Start(char* message) {
  int sockets[2];
  int64_t status = 0;
  if (to_child != -1) return 1;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "no socket: %s", strerror(errno));
    return 0;
  }
  child = fork();
  if (child == 0) Live(sockets[1]);
  close(sockets[1]);
  to_child = sockets[0];
  if (child < 0 || !Read(&status, sizeof status) || !Read(message, INTACT_TARGET_MESSAGE_BYTES)) {
    Stop();
    snprintf(message, INTACT_TARGET_MESSAGE_BYTES,
             "the Python process did not start; set INTACT_PYTHON to a Python with intact's wheel");
    return 0;
  }
  message[INTACT_TARGET_MESSAGE_BYTES - 1] = '\0';
  if (status == INTACT_OK && Read(&introduction.supports, sizeof introduction.supports) &&
      Read(&introduction.conv_supports, sizeof introduction.conv_supports) &&
      Read(&introduction.grouped_supports, sizeof introduction.grouped_supports) &&
      Read(introduction.name, sizeof introduction.name) &&
      Read(introduction.arithmetic, sizeof introduction.arithmetic)) {
    return 1;
  }
  if (status == INTACT_OK)
    snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "the Python process ended before it named the class");
  Stop();
  return 0;
}

static intact_status RunGemm(const intact_gemm_desc* desc, const intact_linear_desc* linear, const void* b,
                             const intact_gemm_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  const int64_t kind = 0, outputs = args->m * desc->n;
  if (!Start(message)) return INTACT_CODEGEN_FAILED;
  if (!Write(&kind, sizeof kind) || !Write(desc, sizeof *desc) || !Write(args, sizeof *args) ||
      !Linear(linear, desc->n) || !Array(args->a, args->m * desc->k, 1) || !Array(b, desc->k * desc->n, 1) ||
      !Array(args->residual, outputs, ElementSize(linear->residual_type))) {
    return Gone(message);
  }
  return Answer(args->c, outputs * ElementSize(linear->c_type), message);
}

static int64_t Extent(const intact_conv_desc* d, int i) {
  const int64_t kernel = d->kernel[i] ? d->kernel[i] : 1, stride = d->stride[i] ? d->stride[i] : 1;
  const int64_t span = (kernel - 1) * (d->dilation[i] ? d->dilation[i] : 1) + 1;
  const int64_t pads = d->pad_begin[i] + d->pad_end[i];
  if (d->transposed) return (d->input[i] - 1) * stride + span - pads + d->output_pad[i];
  return (d->input[i] + pads - span) / stride + 1;
}

static intact_status RunConv(const intact_conv_desc* desc, const intact_linear_desc* linear,
                             const void* weights, const intact_conv_args* args,
                             char message[INTACT_TARGET_MESSAGE_BYTES]) {
  const int64_t kind = 1, groups = desc->groups ? desc->groups : 1, columns = desc->output_channels;
  int64_t inputs = args->batch, outputs = args->batch, taps = 1;
  intact_conv_args complete = *args;  // with the output's extents
  for (int i = 0; i < desc->spatial_dims; ++i) {
    complete.output[i] = Extent(desc, i);
    inputs *= desc->input[i];
    outputs *= complete.output[i];
    taps *= desc->kernel[i] ? desc->kernel[i] : 1;
  }
  if (!Start(message)) return INTACT_CODEGEN_FAILED;
  if (!Write(&kind, sizeof kind) || !Write(desc, sizeof *desc) || !Write(&complete, sizeof complete) ||
      !Linear(linear, columns) || !Array(args->a, inputs * desc->input_channels, 1) ||
      !Array(weights, columns * taps * (desc->input_channels / groups), 1) ||
      !Array(args->residual, outputs * columns, ElementSize(linear->residual_type))) {
    return Gone(message);
  }
  return Answer(args->c, outputs * columns * ElementSize(linear->c_type), message);
}

static int64_t WeightBytes(const intact_grouped_desc* d) {
  return d->n * (d->b_type == INTACT_U4 || d->b_type == INTACT_S4 ? (d->k + 1) / 2 : d->k);
}

static intact_status RunGrouped(const intact_grouped_desc* desc, const void* b,
                                const intact_grouped_args* args, char message[INTACT_TARGET_MESSAGE_BYTES]) {
  const int64_t kind = 2, outputs = args->m * desc->n, depth = desc->group ? desc->group : desc->k;
  const int64_t groups = (desc->k + depth - 1) / depth, values = desc->n * groups;
  const int64_t rows = args->m * (desc->a_granularity == INTACT_GRANULARITY_GROUPS ? groups : 1);
  const int32_t a_type = desc->a_source_type ? desc->a_source_type : desc->a_type;
  if (!Start(message)) return INTACT_CODEGEN_FAILED;
  if (!Write(&kind, sizeof kind) || !Write(desc, sizeof *desc) || !Write(args, sizeof *args) ||
      !Array(args->a, args->m * desc->k, ElementSize(a_type)) || !Array(args->a_scales, rows, 4) ||
      !Array(args->a_zero_points, rows, 4) || !Array(b, WeightBytes(desc), 1) ||
      !Array(desc->b_scales, values, ElementSize(desc->scale_type)) ||
      !Array(desc->b_zero_points, values, 1) || !Array(desc->bias_f32, desc->n, 4)) {
    return Gone(message);
  }
  return Answer(args->c, outputs * ElementSize(desc->c_type), message);
}

INTACT_API const intact_target* intact_target_open(uint32_t abi, const char* options,
                                                   char message[INTACT_TARGET_MESSAGE_BYTES]) {
  static intact_target target = {sizeof(intact_target),
                                 introduction.name,
                                 0,
                                 introduction.arithmetic,
                                 RunGemm,
                                 RunConv,
                                 RunGrouped,
                                 0,
                                 0};
  if (abi != INTACT_TARGET_ABI) {
    snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "was made for ABI %d; intact has %u", INTACT_TARGET_ABI,
             abi);
    return NULL;
  }
  file_and_class = strchr(options, ':') == NULL ? NULL : strdup(options);
  if (file_and_class == NULL) {
    snprintf(message, INTACT_TARGET_MESSAGE_BYTES, "expected python:FILE:CLASS");
    return NULL;
  }
  if (!Start(message)) return NULL;
  target.supports = introduction.supports;
  target.conv_supports = introduction.conv_supports;
  target.grouped_supports = introduction.grouped_supports;
  return &target;
}
