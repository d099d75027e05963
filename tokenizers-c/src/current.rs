//! A pointer that each thread has of its own and that every allocation looks at.
//!
//! `thread_local!` of a shared library is a function call. On x86-64 the pointer therefore lies in
//! the part of thread storage that is set up before the program starts (the initial-exec model).

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss, \"awT\", @nobits",
    ".balign 8",
    ".hidden gtc_current_call",
    ".globl gtc_current_call",
    ".type gtc_current_call, @object",
    ".size gtc_current_call, 8",
    "gtc_current_call:",
    ".zero 8",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn get<T>() -> *const T {
    let pointer: *const T;
    unsafe {
        std::arch::asm!(
            "mov {0}, qword ptr [rip + gtc_current_call@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly)
        )
    };
    pointer
}

#[cfg(target_arch = "x86_64")]
pub fn set<T>(pointer: *const T) {
    unsafe {
        std::arch::asm!(
            "mov {0}, qword ptr [rip + gtc_current_call@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) pointer,
            options(nostack, preserves_flags)
        )
    };
}

#[cfg(not(target_arch = "x86_64"))]
thread_local! {
    static CURRENT: std::cell::Cell<*const u8> = const { std::cell::Cell::new(std::ptr::null()) };
}

#[cfg(not(target_arch = "x86_64"))]
pub fn get<T>() -> *const T {
    CURRENT.get() as *const T
}

#[cfg(not(target_arch = "x86_64"))]
pub fn set<T>(pointer: *const T) {
    CURRENT.set(pointer as *const u8);
}
