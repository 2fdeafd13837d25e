// Fibers: a stack and a place to go on. On x86-64 a switch saves the six callee-saved registers by hand (a few nanoseconds; swapcontext
// would make two system calls); elsewhere ucontext. The address sanitizer is told of each switch.
#include "model.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define TELL_SANITIZER        1
#define FRESH_STACK(f, bytes) ASAN_UNPOISON_MEMORY_REGION((f)->stack, bytes) // what the last thread left there
#else
#define FRESH_STACK(f, bytes) ((void)0)
#endif

_Thread_local sim_thread *sim_self;

#if defined(__x86_64__) && !defined(GLINT_SIM_UCONTEXT)

void sim_switch_stacks(void **save, void *load);
__asm__(".text\n"
        ".globl sim_switch_stacks\n"
        ".hidden sim_switch_stacks\n"
        ".type sim_switch_stacks, @function\n"
        "sim_switch_stacks:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size sim_switch_stacks, .-sim_switch_stacks\n");

void fiber_start(fiber *f, size_t stack_bytes, void (*entry)(void)) {
  FRESH_STACK(f, stack_bytes);
  // six registers and the return address; at entry the stack is 8 below a multiple of 16, as after a call
  uintptr_t top = ((uintptr_t)f->stack + stack_bytes) & ~(uintptr_t)15;
  void **sp = (void **)top - 8;
  memset(sp, 0, 8 * sizeof *sp);
  memcpy(&sp[6], &entry, sizeof entry);
  f->sp = sp;
}
static void switch_stacks(fiber *from, fiber *to) { sim_switch_stacks(&from->sp, to->sp); }

#else

#include <ucontext.h>
void fiber_start(fiber *f, size_t stack_bytes, void (*entry)(void)) {
  FRESH_STACK(f, stack_bytes);
  ucontext_t *c = f->sp ? f->sp : malloc(sizeof *c);
  f->sp = c;
  if (!c) return;
  getcontext(c);
  c->uc_stack.ss_sp = f->stack;
  c->uc_stack.ss_size = stack_bytes;
  c->uc_link = NULL;
  makecontext(c, entry, 0);
}
static void switch_stacks(fiber *from, fiber *to) {
  if (!from->sp) from->sp = malloc(sizeof(ucontext_t));
  swapcontext(from->sp, to->sp);
}

#endif

#ifdef TELL_SANITIZER
static _Thread_local struct {
  const void *bottom;
  size_t size;
} host_stack;
void sim_fiber_entered(void *fake);
void sim_fiber_entered(void *fake) {
  const void *bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(fake, &bottom, &size);
  if (!host_stack.bottom) host_stack.bottom = bottom, host_stack.size = size;
}
#endif

int fiber_create(fiber *f, size_t stack_bytes) {
  size_t guard = 4096; // an overflow faults instead of running into the next stack
  unsigned char *p = mmap(NULL, stack_bytes + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return -1;
  mprotect(p, guard, PROT_NONE);
  f->stack = p + guard;
  f->sp = NULL;
  return 0;
}
void fiber_destroy(fiber *f, size_t stack_bytes) {
  if (f->stack) munmap((unsigned char *)f->stack - 4096, stack_bytes + 4096);
  f->stack = NULL;
}

void fiber_switch(fiber *from, fiber *to) {
#ifdef TELL_SANITIZER
  void *fake = NULL;
  // extra holds the stack's size of a thread's fiber; the host's own stack has none
  const void *bottom = to->stack ? to->stack : host_stack.bottom;
  size_t size = to->stack ? (size_t)(uintptr_t)to->extra : host_stack.size;
  __sanitizer_start_switch_fiber(&fake, bottom, size);
  switch_stacks(from, to);
  sim_fiber_entered(fake);
#else
  switch_stacks(from, to);
#endif
}
