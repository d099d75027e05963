// Trains through the C interface from Rust, without a crate.
//
//   rustc -O train.rs -L PREFIX/lib -C link-arg=-Wl,-rpath,PREFIX/lib -o train
//   ./train EXPORTED_DIR OUTPUT_DIR     a causal language model (tools/export_model.py)
use std::ffi::{c_char, c_int, c_void, CStr, CString};

#[repr(C)]
struct GradusError {
    id: [c_char; 24],
    text: [c_char; 1000],
}

#[repr(C)]
struct GradusTensor {
    name: *const c_char,
    dtype: c_int,
    dims: i32,
    sizes: *const i64,
    data: *const c_void,
}

const INT64: c_int = 2;

#[link(name = "gradus")]
extern "C" {
    fn gradus_open(
        folder: *const c_char,
        task: *const c_char,
        options: *const c_char,
        trainer: *mut u64,
        error: *mut GradusError,
    ) -> c_int;
    fn gradus_close(trainer: u64, error: *mut GradusError) -> c_int;
    fn gradus_step(
        trainer: u64,
        batch: *const GradusTensor,
        count: usize,
        loss: *mut f64,
        error: *mut GradusError,
    ) -> c_int;
    fn gradus_save(trainer: u64, folder: *const c_char, error: *mut GradusError) -> c_int;
}

/// A model that is trained; closed when it goes out of scope.
struct Trainer(u64);

/// Turns a status into a result with the library's text.
fn call(work: impl FnOnce(*mut GradusError) -> c_int) -> Result<(), String> {
    let mut error = GradusError {
        id: [0; 24],
        text: [0; 1000],
    };
    match work(&mut error) {
        0 => Ok(()),
        status => {
            let text = unsafe { CStr::from_ptr(error.text.as_ptr()) };
            Err(format!("status {status}: {}", text.to_string_lossy()))
        }
    }
}

impl Trainer {
    fn open(folder: &str, options: &str) -> Result<Trainer, String> {
        let (folder, options) = (
            CString::new(folder).unwrap(),
            CString::new(options).unwrap(),
        );
        let mut handle = 0;
        call(|error| unsafe {
            let task = std::ptr::null();
            gradus_open(folder.as_ptr(), task, options.as_ptr(), &mut handle, error)
        })?;
        Ok(Trainer(handle))
    }

    fn step(&self, ids: &[i64], sizes: [i64; 2]) -> Result<f64, String> {
        let names = [c"input_ids", c"labels"];
        let batch = names.map(|name| GradusTensor {
            name: name.as_ptr(),
            dtype: INT64,
            dims: 2,
            sizes: sizes.as_ptr(),
            data: ids.as_ptr().cast(),
        });
        let mut loss = 0.0;
        call(|error| unsafe { gradus_step(self.0, batch.as_ptr(), 2, &mut loss, error) })?;
        Ok(loss)
    }

    fn save(&self, folder: &str) -> Result<(), String> {
        let folder = CString::new(folder).unwrap();
        call(|error| unsafe { gradus_save(self.0, folder.as_ptr(), error) })
    }
}

impl Drop for Trainer {
    fn drop(&mut self) {
        unsafe { gradus_close(self.0, std::ptr::null_mut()) };
    }
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, output] = &arguments[..] else {
        return Err("usage: train EXPORTED_DIR OUTPUT_DIR".into());
    };
    let trainer = Trainer::open(folder, r#"{"learning_rate": 0.001, "max_steps": 20}"#)?;
    let ids: Vec<i64> = (0..4 * 16).map(|i| 5 + (i * 7) % 60).collect();
    let losses = (0..20)
        .map(|_| trainer.step(&ids, [4, 16]))
        .collect::<Result<Vec<_>, _>>()?;
    trainer.save(output)?;
    println!("20 steps, loss {:.4} to {:.4}", losses[0], losses[19]);
    if losses[19] < losses[0] {
        Ok(())
    } else {
        Err("the loss did not fall".into())
    }
}
