#!/usr/bin/env python3
"""A package that needs no compiler, made and then used where gradus was never built.

  packages_test.py wheel|tar|deb|image ROOT BUILD LIBTORCH FOLDER

wheel: installed by pip into a new environment with the build's LibTorch as its torch.
tar:   unpacked into a folder with a space in its name.
deb:   unpacked; installed by apt in a new Debian 12 with GRADUS_LONG=1 (root, and debootstrap).
image: packaging/Dockerfile.cpu built by buildah, which needs no daemon, with GRADUS_LONG=1 (root;
       it compiles gradus anew). No registry is asked: the base images are made here, from
       Debian's packages and the Rust of this machine.

In each the program starts with an empty environment, finds every library in the package (but for
the C and C++ run-time libraries), trains on Fashion-MNIST, and find_package(gradus) works.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

BASE = re.compile(r"^(linux-vdso|/?lib64/ld-linux|/lib64/ld|"
                  r"lib(c|m|pthread|dl|rt|util|stdc\+\+|gcc_s)\.so)")
CLEAN = {"PATH": "/usr/bin:/bin", "HOME": "/tmp"}
TRAIN = ["train", "--task", "image-classification", "--dataset_name", "fashion_mnist",
         "--max_steps", "20", "--disable_tqdm", "--overwrite_output_dir", "--output_dir"]


def call(*command, **more):
    more = {"env": CLEAN, **more}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout


def package(kind, root, build, folder):
    told = call(sys.executable, root / "tools/package", kind, "--build", build, "--to",
                folder / "dist", "--level", "1", env=os.environ)
    return pathlib.Path(told.rsplit(" (", 1)[0].strip())


def use(command, prefix, allowed, folder):
    """The program of a package; `allowed`: folders whose libraries belong to it."""
    for line in call("ldd", prefix / "bin/gradus").splitlines():
        name, _, place = line.strip().partition(" => ")
        if BASE.match(name):
            continue
        place = pathlib.Path(place.rsplit(" (", 1)[0]).resolve()
        if not any(place.is_relative_to(inside.resolve()) for inside in allowed):
            sys.exit(f"{name} was found outside the package: {place}")
    told = call(*command, "doctor")
    for part in ("tokenizers     built in", "Arrow          built in"):
        if part not in told:
            sys.exit(f"doctor does not say {part!r}:\n{told}")
    call(*command, *TRAIN, folder / "run")
    if not (folder / "run/model.safetensors").is_file():
        sys.exit("no model was saved")


def find_package(prefix, folder):
    """CMake finds the package, with nothing but its folder."""
    project = folder / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(outside LANGUAGES CXX)\n"
        "find_package(gradus REQUIRED)\nget_target_property(at gradus::gradus LOCATION)\n"
        "if(NOT EXISTS ${at})\n  message(FATAL_ERROR \"no library at ${at}\")\nendif()\n")
    call("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}")


def wheel_test(root, build, libtorch, folder):
    path = package("wheel", root, build, folder)
    if path.stat().st_size > 40e6:
        sys.exit(f"{path} is larger than 40 MB")
    call(sys.executable, "-m", "venv", folder / "environment")
    python = folder / "environment/bin/python"
    call(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", path)
    prefix = pathlib.Path(call(python, "-m", "gradus.cmake_prefix").strip())
    (prefix.parent / "torch").symlink_to(libtorch)
    runtime = build / "../../.deps/cuda-runtime/nvidia"
    if not (libtorch.parent / "nvidia").exists() and runtime.exists():
        (prefix.parent / "nvidia").symlink_to(runtime.resolve())
    allowed = [prefix, libtorch, libtorch.parent, runtime]
    use([folder / "environment/bin/gradus"], prefix, allowed, folder)
    find_package(prefix, folder)


def tar_test(root, build, libtorch, folder):
    path = package("tar", root, build, folder)
    place = folder / "a place"
    place.mkdir()
    call("tar", "-C", place, "-xzf", path)
    path.unlink()
    prefix = next(place.iterdir())
    use([prefix / "bin/gradus"], prefix, [prefix], folder)
    find_package(prefix, folder)


def deb_test(root, build, libtorch, folder):
    path = package("deb", root, build, folder)
    call("dpkg-deb", "-x", path, folder / "root")
    prefix = folder / "root/usr/lib/gradus"
    use([folder / "root/usr/bin/gradus"], prefix, [prefix], folder)
    if os.environ.get("GRADUS_LONG"):
        new_debian(path, folder / "debian")


def new_debian(path, system):
    call("debootstrap", "--variant=minbase", "bookworm", system, env=os.environ)
    shutil.copy(path, system / "tmp")
    data = pathlib.Path("/usr/share/datasets/fashion-mnist")
    shutil.copytree(data, system / str(data).lstrip("/"))
    call("chroot", system, "apt-get", "install", "-y", f"/tmp/{path.name}")
    call("chroot", system, "gradus", *TRAIN, "/tmp/run")
    call("chroot", system, "apt-get", "remove", "-y", "gradus")
    if (system / "usr/lib/gradus").exists():
        sys.exit("the package left files behind")


RUST = """FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends build-essential
COPY rust /usr/local/cargo
ENV CARGO_HOME=/usr/local/cargo
ENV PATH=/usr/local/cargo/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""


def base_images(buildah, folder):
    """Stand-ins for debian:12-slim and rust:1-bookworm."""
    debian, rust = folder / "debian", folder / "rust"
    debian.mkdir()
    call("mmdebstrap", "--variant=minbase", "--include=ca-certificates", "bookworm",
         debian / "root.tar", env=os.environ)
    (debian / "Dockerfile").write_text("FROM scratch\nADD root.tar /\n")
    buildah("bud", "-t", "debian:12-slim", debian)
    shutil.rmtree(debian)
    system_root = pathlib.Path(call("rustc", "--print", "sysroot", env=os.environ).strip())
    for part in ("bin", "lib"):
        shutil.copytree(system_root / part, rust / "rust" / part, symlinks=True)
    (rust / "Dockerfile").write_text(RUST)
    buildah("bud", "--pull-never", "-t", "rust:1-bookworm", rust)
    shutil.rmtree(rust)


def image_test(root, build, libtorch, folder):
    places = ["--root", folder / "storage", "--runroot", folder / "state"]
    certificates = "/etc/ssl/certs"

    def buildah(command, *words):
        own = [] if command in ("from", "rm") else ["--isolation", "chroot"]
        return call("buildah", *places, command, *own, *words, env=os.environ)

    base_images(buildah, folder)
    files = call("git", "-C", root, "ls-files", "-z", env=os.environ).split("\0")
    for name in filter(None, files):  # the clone without what was built in it
        target = folder / "clone" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, target, follow_symlinks=False)
    clone = folder / "clone"
    buildah("bud", "--pull-never", "--volume", f"{certificates}:{certificates}:ro", "-f",
            clone / "packaging/Dockerfile.cpu", "-t", "gradus", clone)
    name = buildah("from", "--pull-never", "gradus").strip()
    run = ["run", name, "--", "gradus"]
    told = buildah(*run, "doctor")
    for part in ("tokenizers     built in", "Arrow          built in"):
        if part not in told:
            sys.exit(f"doctor does not say {part!r}:\n{told}")
    told = buildah(*run, *TRAIN, "/tmp/run")
    if "train_loss" not in told:
        sys.exit(f"the training in the image says:\n{told}")
    buildah("rm", name)
    subprocess.run(["umount", "--quiet", folder / "storage/overlay"], check=False)


def why_no_image():
    if not os.environ.get("GRADUS_LONG"):
        return "the image is built with GRADUS_LONG=1 only: it compiles gradus anew"
    if os.geteuid() != 0:
        return "only root can make the base images"
    for tool in ("buildah", "mmdebstrap", "rustc"):
        if shutil.which(tool) is None:
            return f"{tool} is missing"
    return None


def main():
    kind, *paths = sys.argv[1:]
    root, build, libtorch, folder = (pathlib.Path(path).resolve() for path in paths)
    if kind == "image" and why_no_image():
        print(f"skipped: {why_no_image()}")
        return 77
    if shutil.which("patchelf") is None:
        print("skipped: patchelf is missing; tools/setup installs it")
        return 77
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tests = {"wheel": wheel_test, "tar": tar_test, "deb": deb_test, "image": image_test}
    tests[kind](root, build, libtorch, folder)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
