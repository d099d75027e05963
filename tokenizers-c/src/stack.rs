//! Stacks that a call can run on and be left on.

use std::ops::Range;
use std::sync::Once;

use crate::limits::on_stack_overflow;

pub const SIZE: usize = 16 << 20;
/// Pages below the stack that nobody may touch: more than any frame skips.
const GUARD: usize = 1 << 20;
/// What the allocator and the handlers may need below the last check.
const RESERVE: usize = 256 << 10;
const SIGNAL_STACK: usize = 64 << 10;

// gtc_stack_switch(save, to): keeps the callee's registers on this stack, its pointer in *save, and
// goes on where `to` was kept. gtc_stack_start: the first thing that runs on a new stack.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".hidden gtc_stack_switch",
    ".globl gtc_stack_switch",
    ".type gtc_stack_switch, @function",
    "gtc_stack_switch:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".size gtc_stack_switch, . - gtc_stack_switch",
    ".hidden gtc_stack_start",
    ".globl gtc_stack_start",
    ".type gtc_stack_start, @function",
    "gtc_stack_start:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "mov rdi, r13",
    "call r12",
    "ud2",
    ".cfi_endproc",
    ".size gtc_stack_start, . - gtc_stack_start",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".hidden gtc_stack_switch",
    ".globl gtc_stack_switch",
    ".type gtc_stack_switch, @function",
    "gtc_stack_switch:",
    "sub sp, sp, #160",
    "stp x19, x20, [sp, #0]",
    "stp x21, x22, [sp, #16]",
    "stp x23, x24, [sp, #32]",
    "stp x25, x26, [sp, #48]",
    "stp x27, x28, [sp, #64]",
    "stp x29, x30, [sp, #80]",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "mov x9, sp",
    "str x9, [x0]",
    "mov sp, x1",
    "ldp x19, x20, [sp, #0]",
    "ldp x21, x22, [sp, #16]",
    "ldp x23, x24, [sp, #32]",
    "ldp x25, x26, [sp, #48]",
    "ldp x27, x28, [sp, #64]",
    "ldp x29, x30, [sp, #80]",
    "ldp d8, d9, [sp, #96]",
    "ldp d10, d11, [sp, #112]",
    "ldp d12, d13, [sp, #128]",
    "ldp d14, d15, [sp, #144]",
    "add sp, sp, #160",
    "ret",
    ".size gtc_stack_switch, . - gtc_stack_switch",
    ".hidden gtc_stack_start",
    ".globl gtc_stack_start",
    ".type gtc_stack_start, @function",
    "gtc_stack_start:",
    ".cfi_startproc",
    ".cfi_undefined x30",
    "mov x0, x20",
    "blr x19",
    "brk #1",
    ".cfi_endproc",
    ".size gtc_stack_start, . - gtc_stack_start",
);

extern "C" {
    fn gtc_stack_switch(save: *mut *mut u8, to: *mut u8);
    fn gtc_stack_start();
}

/// What `gtc_stack_switch` finds on a new stack: which of its words are the function, its argument
/// and `gtc_stack_start`, and how many there are.
#[cfg(target_arch = "x86_64")]
const FRAME: (usize, usize, usize, usize) = (3, 2, 6, 7);
#[cfg(target_arch = "aarch64")]
const FRAME: (usize, usize, usize, usize) = (0, 1, 11, 20);

#[inline(always)]
pub fn pointer() -> usize {
    let here: usize;
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags))
    };
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) here, options(nomem, nostack, preserves_flags))
    };
    here
}

/// Nanoseconds that the processor has worked for this thread; pauses do not count.
pub fn processor_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Continues at `to` and never returns.
pub unsafe fn leave(to: *mut u8) -> ! {
    let mut nowhere = std::ptr::null_mut();
    gtc_stack_switch(&mut nowhere, to);
    std::process::abort() // nobody continues a stack that was left
}

fn map(size: usize, protection: i32) -> Option<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let address = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address as *mut u8)
}

/// A stack with guard pages below it. Pages that were never touched take no memory.
pub struct Stack {
    base: *mut u8,
}

impl Stack {
    pub fn new() -> Option<Stack> {
        let base = map(GUARD + SIZE, libc::PROT_NONE)?;
        let stack = Stack { base };
        let usable = unsafe { base.add(GUARD) as *mut libc::c_void };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        (unsafe { libc::mprotect(usable, SIZE, rights) } == 0).then_some(stack)
    }

    pub fn floor(&self) -> usize {
        self.base as usize + GUARD + RESERVE
    }

    pub fn guard(&self) -> Range<usize> {
        self.base as usize..self.base as usize + GUARD
    }

    /// Runs `function(argument)` on this stack until somebody calls `leave(*caller)`.
    pub unsafe fn enter(&self, caller: *mut *mut u8, function: *const u8, argument: *mut u8) {
        let (first, second, start, words) = FRAME;
        let top = self.base.add(GUARD + SIZE) as *mut usize;
        let frame = top.sub(words);
        for word in 0..words {
            frame.add(word).write(0);
        }
        frame.add(first).write(function as usize);
        frame.add(second).write(argument as usize);
        frame.add(start).write(gtc_stack_start as *const () as usize);
        gtc_stack_switch(caller, frame as *mut u8);
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.base as *mut libc::c_void, GUARD + SIZE) };
    }
}

/// Where this thread's signal handlers run; a full stack has no room for them.
struct SignalStack {
    memory: *mut u8,
}

impl SignalStack {
    /// None when the thread has one already.
    fn install() -> Option<SignalStack> {
        unsafe {
            let mut current: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut current);
            if current.ss_flags & libc::SS_DISABLE == 0 {
                return None;
            }
            let memory = map(SIGNAL_STACK, libc::PROT_READ | libc::PROT_WRITE)?;
            let ours = libc::stack_t {
                ss_sp: memory as *mut libc::c_void,
                ss_flags: 0,
                ss_size: SIGNAL_STACK,
            };
            libc::sigaltstack(&ours, std::ptr::null_mut());
            Some(SignalStack { memory })
        }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        unsafe {
            let mut current: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &mut current);
            if current.ss_sp as *mut u8 == self.memory {
                current.ss_flags = libc::SS_DISABLE;
                libc::sigaltstack(&current, std::ptr::null_mut());
            }
            libc::munmap(self.memory as *mut libc::c_void, SIGNAL_STACK);
        }
    }
}

thread_local! { static SIGNAL_STACK_HERE: Option<SignalStack> = SignalStack::install(); }

static mut FORMER: libc::sigaction = unsafe { std::mem::zeroed() };

/// Leaves a call whose stack is full; every other fault goes to whoever was here before.
unsafe extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if (*info).si_code > 0 {
        on_stack_overflow((*info).si_addr() as usize);
    }
    let former = &raw const FORMER;
    match (*former).sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            libc::sigaction(signal, former, std::ptr::null_mut());
            libc::raise(signal);
        }
        handler if (*former).sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
        }
        handler => std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal),
    }
}

/// Makes a full stack of this thread's calls an error. Cheap after the first time.
pub fn catch_overflows() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSEGV, &action, &raw mut FORMER);
    });
    let _ = SIGNAL_STACK_HERE.try_with(|_| ());
}
