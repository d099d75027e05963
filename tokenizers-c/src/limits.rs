//! Limits of one call: memory, processor time and depth.
//!
//! What a call may read was written by strangers, and the crates below have no limits of their own.
//! Rust ends the process when an allocation fails or a stack overflows. Therefore a call with
//! limits runs on a stack of its own, and the allocator counts what the call takes. A call that
//! reaches a limit is left where it stands, and its caller goes on with an error. The call is never
//! continued, and none of its values is dropped. What it had allocated is lost to the process: at
//! most its limit of memory. Its stack is given back.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;

use crate::abi::{caught, Outcome};
use crate::{current, stack};

/// Every error that names a limit begins with this.
pub const LIMIT: &str = "limit of ";

const MIB: usize = 1 << 20;
/// How many allocations pass between two looks at the clock.
const PERIOD: u32 = 2048;

/// What a call may take. `GRADUS_LIMIT_FACTOR` multiplies all of it.
#[derive(Clone, Copy)]
pub struct Limits {
    memory: usize,
    nanoseconds: u64,
}

impl Limits {
    /// `memory` bytes and `per_byte` more for each of the `size` bytes of input.
    pub fn new(memory: usize, per_byte: usize, size: usize) -> Limits {
        let memory = memory.saturating_add(per_byte.saturating_mul(size));
        let nanoseconds = 3_000_000_000 + 20_000 * size as u64;
        Limits {
            memory: memory.saturating_mul(factor()).min(isize::MAX as usize),
            nanoseconds: nanoseconds.saturating_mul(factor() as u64),
        }
    }

    /// For calls that look into a tokenizer, copy it or write it.
    pub fn general(size: usize) -> Limits {
        Limits { nanoseconds: 60_000_000_000, ..Limits::new(1024 * MIB, 64, size) }
    }

    /// For calls that make a tokenizer of a file.
    pub fn loading(size: usize) -> Limits {
        Limits::new(512 * MIB, 64, size)
    }

    /// For one of `threads` that tokenize texts of `size` bytes together.
    pub fn encoding(size: usize, threads: usize) -> Limits {
        Limits::new((1024 * MIB / threads.max(1)).max(256 * MIB), 2048, size)
    }

    /// For parsing and rendering a chat template with `size` bytes of variables.
    pub fn template(size: usize) -> Limits {
        Limits::new(256 * MIB, 64, size)
    }
}

/// By how much the user has raised all limits.
pub fn factor() -> usize {
    static FACTOR: OnceLock<usize> = OnceLock::new();
    *FACTOR.get_or_init(|| {
        let given = std::env::var("GRADUS_LIMIT_FACTOR").ok();
        given.and_then(|text| text.trim().parse().ok()).filter(|factor| *factor > 0).unwrap_or(1)
    })
}

#[derive(Clone, Copy)]
enum Reached {
    Memory,
    System,
    Time,
    Depth,
}

/// A call that is running on a stack of its own. It lies on its caller's stack.
struct Call {
    limits: Cell<Limits>,
    remaining: Cell<isize>,
    ticks: Cell<u32>,
    deadline: Cell<u64>, // 0: the clock was not read yet
    floor: usize,        // below it the stack is nearly full
    guard: std::ops::Range<usize>,
    caller: Cell<*mut u8>,
    reached: Cell<Option<Reached>>,
}

thread_local! { static SPARE: RefCell<Option<stack::Stack>> = const { RefCell::new(None) }; }

impl Call {
    fn take(&self, size: usize) {
        let remaining = self.remaining.get().wrapping_sub(size as isize);
        if remaining < 0 || size > isize::MAX as usize {
            self.end(Reached::Memory);
        }
        self.remaining.set(remaining);
        self.check_depth();
        let ticks = self.ticks.get();
        if ticks == 0 {
            self.check_time();
        } else {
            self.ticks.set(ticks - 1);
        }
    }

    fn give(&self, size: usize) {
        self.remaining.set(self.remaining.get().wrapping_add(size as isize));
        self.check_depth();
    }

    fn check_depth(&self) {
        if stack::pointer() < self.floor {
            self.end(Reached::Depth);
        }
    }

    fn check_time(&self) {
        self.ticks.set(PERIOD);
        let now = stack::processor_time();
        match self.deadline.get() {
            0 => self.deadline.set(now + self.limits.get().nanoseconds),
            deadline if now > deadline => self.end(Reached::Time),
            _ => {}
        }
    }

    /// Leaves the call, unless it is panicking: then it is about to end by itself.
    #[cold]
    fn end(&self, reached: Reached) {
        if !std::thread::panicking() {
            self.leave(reached);
        }
    }

    /// Goes on in the caller; this call stays where it is for good.
    fn leave(&self, reached: Reached) -> ! {
        self.reached.set(Some(reached));
        current::set::<Call>(std::ptr::null());
        unsafe { stack::leave(self.caller.get()) }
    }

    fn text(&self, reached: Reached) -> String {
        let limits = self.limits.get();
        match reached {
            Reached::Memory => {
                format!("{LIMIT}memory reached: more than {} MB", limits.memory / MIB)
            }
            Reached::System => format!("{LIMIT}memory reached: the system gives no more"),
            Reached::Time => format!(
                "{LIMIT}time reached: more than {} seconds of processor time",
                limits.nanoseconds / 1_000_000_000
            ),
            Reached::Depth => format!(
                "{LIMIT}depth reached: nested too deep for a stack of {} MB",
                stack::SIZE / MIB
            ),
        }
    }
}

/// The text of an error for a panic; those of `Vec` and `String` about sizes are a limit too.
pub fn panic_error(text: String) -> String {
    if text == "capacity overflow" {
        format!("{LIMIT}memory reached: more than any memory holds")
    } else {
        text
    }
}

/// Called by the handler of SIGSEGV: leaves the running call if `address` lies in its guard pages.
pub fn on_stack_overflow(address: usize) {
    if let Some(call) = unsafe { current::get::<Call>().as_ref() } {
        if call.guard.contains(&address) {
            call.leave(Reached::Depth);
        }
    }
}

/// Begins the time of a call anew, for the next of several texts, this one of `size` bytes.
pub fn restart(size: usize) {
    if let Some(call) = unsafe { current::get::<Call>().as_ref() } {
        let nanoseconds = Limits::new(0, 0, size).nanoseconds;
        call.limits.set(Limits { nanoseconds, ..call.limits.get() });
        call.deadline.set(0);
    }
}

struct Work<F, T> {
    body: Option<F>,
    outcome: Option<Outcome<T>>,
    call: Call,
}

unsafe extern "C" fn work<F: FnOnce() -> Outcome<T>, T>(work: *mut Work<F, T>) {
    let body = (*work).body.take();
    let outcome = caught(|| body.map_or_else(|| Err("nothing to do".into()), |body| body()));
    (*work).outcome = Some(outcome);
    current::set::<Call>(std::ptr::null());
    stack::leave((*work).call.caller.get());
}

/// Runs `body` within `limits`; an error that begins with `LIMIT` names the one that was reached.
/// `body` must not hold a lock that its caller's next call needs, nor let other threads borrow from
/// its caller: it may be left anywhere.
pub fn bounded<T>(limits: Limits, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    if !current::get::<Call>().is_null() {
        return body();
    }
    stack::catch_overflows();
    let spare = SPARE.try_with(|spare| spare.borrow_mut().take()).ok().flatten();
    let stack = match spare.map_or_else(stack::Stack::new, Some) {
        Some(stack) => stack,
        None => return Err(format!("{LIMIT}memory reached: no room for a stack").into()),
    };
    let call = Call {
        limits: Cell::new(limits),
        remaining: Cell::new(limits.memory as isize),
        ticks: Cell::new(PERIOD),
        deadline: Cell::new(0),
        floor: stack.floor(),
        guard: stack.guard(),
        caller: Cell::new(std::ptr::null_mut()),
        reached: Cell::new(None),
    };
    let mut given = Work { body: Some(body), outcome: None, call };
    let pointer = &raw mut given;
    unsafe {
        current::set::<Call>(&raw const (*pointer).call);
        enter(pointer, &stack);
        match (*pointer).call.reached.get() {
            Some(reached) => Err((*pointer).call.text(reached).into()), // its stack is freed
            None => {
                let _ = SPARE.try_with(|spare| spare.borrow_mut().replace(stack));
                (*pointer).outcome.take().unwrap_or_else(|| Err("nothing was done".into()))
            }
        }
    }
}

unsafe fn enter<F: FnOnce() -> Outcome<T>, T>(pointer: *mut Work<F, T>, stack: &stack::Stack) {
    let caller = (*pointer).call.caller.as_ptr();
    stack.enter(caller, work::<F, T> as *const u8, pointer as *mut u8);
}

/// mimalloc, with a running call's limits in front of it.
pub struct CountingAllocator;

static MIMALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;

impl CountingAllocator {
    /// The running call is left when the system has no memory: else Rust would end the process.
    #[inline(always)]
    unsafe fn counted(size: usize, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
        let Some(call) = current::get::<Call>().as_ref() else { return allocate() };
        call.take(size);
        let memory = allocate();
        if memory.is_null() {
            call.leave(Reached::System);
        }
        memory
    }
}

unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::counted(layout.size(), || MIMALLOC.alloc(layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::counted(layout.size(), || MIMALLOC.alloc_zeroed(layout))
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if let Some(call) = current::get::<Call>().as_ref() {
            call.give(layout.size());
        }
        MIMALLOC.dealloc(memory, layout)
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if let Some(call) = current::get::<Call>().as_ref() {
            call.give(layout.size());
        }
        Self::counted(size, || MIMALLOC.realloc(memory, layout, size))
    }
}
