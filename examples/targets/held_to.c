/* Runs a program as on an older CPU, at full speed. CPUID reports only the features of the level in HELD_TO,
 * so the program's libraries choose their kernels for that CPU. With initfirst this library's constructor runs
 * before all others. Only IFUNC resolvers, which the loader runs before constructors, see the real CPU.
 *
 *   cc -O2 -shared -fPIC -Wl,-z,initfirst -o held_to.so held_to.c
 *   HELD_TO=avx2 LD_PRELOAD=$PWD/held_to.so python3 ...
 *
 * Levels: avx2, avx_vnni (AVX2 and AVX-VNNI), avx512 (AVX-512 without VNNI), avx512_vnni (without AMX). The
 * CPU must have the level's features and CPUID faulting: Intel since Ivy Bridge, in virtual machines too. The
 * kernel then turns each CPUID instruction into a SIGSEGV; the handler answers in its place. The program must
 * not have a handler for SIGSEGV of its own, and no thread may block SIGSEGV. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static const struct Level {
  const char* name;
  unsigned ebx, ecx, edx; /* of CPUID leaf 7: features that stay */
  unsigned eax1;          /* of subleaf 1: features that stay; its other registers become 0 */
  const char* needs;
  unsigned needed_ebx, needed_ecx, needed_eax1; /* bits of `needs` */
} kLevels[] = {
    /* EBX: AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL are bits 16, 17, 21, 26 to 28, 30, 31. ECX: VBMI, VBMI2,
     * VNNI, BITALG, VPOPCNTDQ are bits 1, 6, 11, 12, 14. EDX: bits 2, 3, 8 and 23 are AVX-512 too, 22, 24 and
     * 25 are AMX. */
    {"avx2", 0x23dcffff, 0xffffa7bd, 0xfc3ffef3, 0, "AVX2", 1 << 5, 0, 0},
    {"avx_vnni", 0x23dcffff, 0xffffa7bd, 0xfc3ffef3, 1 << 4, "AVX-VNNI", 1 << 5, 0, 1 << 4},
    {"avx512", 0xf3dfffff, 0xffffa7bd, 0xfc3ffef3, 0, "AVX-512", 0xc0030000, 0, 0}, /* F, DQ, BW, VL */
    {"avx512_vnni", 0xffffffff, 0xffffffff, 0xfc3fffff, 0, "AVX-512-VNNI", 0xc0030000, 1 << 11, 0},
};
static const struct Level* level;

static long LetCpuidRun(int allowed) { return syscall(SYS_arch_prctl, 0x1012 /* ARCH_SET_CPUID */, allowed); }

static void Answer(int signal_number, siginfo_t* info, void* context) {
  greg_t* const registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX];
  unsigned eax, ebx, ecx, edx;
  /* A general protection fault has no address. 0F A2 is CPUID. */
  if (info->si_code != SI_KERNEL || memcmp((const void*)registers[REG_RIP], "\x0f\xa2", 2) != 0) {
    signal(signal_number, SIG_DFL); /* the instruction runs again, and ends the process */
    return;
  }
  LetCpuidRun(1);
  __cpuid_count(leaf, subleaf, eax, ebx, ecx, edx);
  LetCpuidRun(0);
  if (leaf == 7 && subleaf == 0) {
    ebx &= level->ebx;
    ecx &= level->ecx;
    edx &= level->edx;
  } else if (leaf == 7) {
    eax &= subleaf == 1 ? level->eax1 : 0;
    ebx = ecx = edx = 0;
  }
  registers[REG_RAX] = eax;
  registers[REG_RBX] = ebx;
  registers[REG_RCX] = ecx;
  registers[REG_RDX] = edx;
  registers[REG_RIP] += 2;
}

/* getenv() finds nothing yet, because libc's constructor runs later. */
__attribute__((constructor)) static void Hold(int argc, char** argv, char** environment) {
  const char* name = NULL;
  struct sigaction action = {0};
  unsigned eax1, ebx, ecx, unused;
  (void)argc, (void)argv;
  for (char** variable = environment; *variable != NULL; ++variable) {
    if (strncmp(*variable, "HELD_TO=", 8) == 0) name = *variable + 8;
  }
  for (size_t i = 0; name != NULL && i < sizeof kLevels / sizeof *kLevels; ++i) {
    if (strcmp(name, kLevels[i].name) == 0) level = &kLevels[i];
  }
  if (level == NULL) {
    fprintf(stderr, "held_to: HELD_TO is %s; expected avx2, avx_vnni, avx512 or avx512_vnni\n",
            name ? name : "not set");
    exit(2);
  }
  __cpuid_count(7, 1, eax1, unused, unused, unused);
  __cpuid_count(7, 0, unused, ebx, ecx, unused);
  if (level->needed_ebx & ~ebx || level->needed_ecx & ~ecx || level->needed_eax1 & ~eax1) {
    fprintf(stderr, "held_to: this CPU lacks %s; HELD_TO is %s\n", level->needs, name);
    exit(2);
  }
  action.sa_sigaction = Answer;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, NULL);
  if (LetCpuidRun(0) != 0) {
    perror("held_to: this CPU or kernel cannot turn CPUID into faults");
    exit(2);
  }
}
