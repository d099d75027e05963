"""page_test.py GRADUS [--shots DIR] [--large]: the page of `gradus serve` in a real Chromium.

It loads, draws, follows a run that is under way, zooms, compares, shows samples, is used with the
keyboard, on a phone, light and dark; `gradus report` is opened from its file. --shots keeps
pictures; --large is the page with a thousand runs and ten million points, and prints how long the
first picture took and the frames of moving a chart. Exits 77 where Chromium is missing, or the
program was built without its page.
"""
import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import chromium  # noqa: E402
import runs  # noqa: E402
import study_file  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("gradus")
parser.add_argument("--shots", type=Path)
parser.add_argument("--large", action="store_true")
OPTIONS = parser.parse_args()
GRADUS = str(Path(OPTIONS.gradus).resolve())


def skip(why):
    print(why)
    sys.exit(77)


def start_server(folder, port="0"):
    process = subprocess.Popen([GRADUS, "serve", str(folder), "--port", port],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    found = re.search(r"(http://127.0.0.1:\d+/)", line)
    if not found:
        error = process.stderr.read()
        if "G-SERVE-1" in error or "G-SERVE-2" in error:
            skip(error.strip())
        raise AssertionError(line + error)
    return process, found[1]


def shot(page, name):
    if OPTIONS.shots:
        OPTIONS.shots.mkdir(parents=True, exist_ok=True)
        page.screenshot(OPTIONS.shots / f"{name}.png")


def ink(page, key):
    """How many pixels of a chart are neither empty nor grey: those of curves."""
    return page.run("(() => { const c = gradus.app.charts.get(" + json.dumps(key) + ")"
                    ".plotElement.querySelector('canvas'); const d = c.getContext('2d')"
                    ".getImageData(0, 0, c.width, c.height).data; let n = 0;"
                    "for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 60 && Math.max(d[i],"
                    "d[i + 1], d[i + 2]) - Math.min(d[i], d[i + 1], d[i + 2]) > 50) ++n;"
                    "return n; })()")


def chart_box(page, key):
    return page.run(f"(() => {{ const e = gradus.app.charts.get({json.dumps(key)}).plot.over;"
                    "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
                    "return [b.left, b.top, b.width, b.height]; })()")


def view_of(page, key):
    return page.run(f"(() => {{ const s = gradus.app.charts.get({json.dumps(key)}).plot.scales.x;"
                    "return [s.min, s.max]; })()")


DRAWN = "gradus.app.charts.get('loss')?.curves.size > 0 && gradus.firstPicture > 0"


def test_curves(page, live):
    page.wait(DRAWN)
    page.wait("gradus.app.runs.length === 9")
    assert ink(page, "loss") > 500, "nothing is drawn"
    shot(page, "curves-light")

    # It follows the run that is under way.
    before = page.run("gradus.app.runs.find(run => run.status === 'running').step")
    noise = random.Random(1)
    with open(live, "a") as out:
        for step in range(before + 5, before + 105, 5):
            out.write(runs.entry(step, 0.004, noise, time.time()))
    page.wait(f"gradus.app.runs.find(run => run.status === 'running').step >= {before + 100}")
    page.wait("(() => { const id = gradus.app.runs.find(run => run.status === 'running').id;"
              "const c = gradus.app.charts.get('loss').curves.get(id);"
              f"return c && c.x[c.x.length - 1] === {before + 100}; }})()")

    # Drag zooms; all charts follow; a double click shows everything again.
    whole = view_of(page, "loss")
    left, top, width, height = chart_box(page, "loss")
    page.drag(left + width * 0.3, top + height / 2, left + width * 0.5, top + height / 2)
    page.wait("gradus.app.charts.get('loss').view !== null")
    zoomed = view_of(page, "loss")
    assert whole[0] < zoomed[0] < zoomed[1] < whole[1], (whole, zoomed)
    assert abs((zoomed[1] - zoomed[0]) / (whole[1] - whole[0]) - 0.2) < 0.05, (whole, zoomed)
    assert page.run("gradus.app.charts.get('eval_loss').view?.[0]") == zoomed[0]
    page.drag(left + width * 0.5, top + height / 2, left + width * 0.3, top + height / 2,
              modifiers=8)  # shift moves
    moved = view_of(page, "loss")
    assert moved[0] > zoomed[0] and abs((moved[1] - moved[0]) - (zoomed[1] - zoomed[0])) < 1e-6
    test_moving(page)
    page.run("document.getElementById('reset').click()")
    page.wait("gradus.app.charts.get('loss').view === null")

    # Smoothing, a logarithmic scale and the other axes.
    page.run("(() => { const s = document.getElementById('smoothing'); s.value = 0.9;"
             "s.dispatchEvent(new Event('input')); })()")
    page.wait("(() => { const c = [...gradus.app.charts.get('loss').curves.values()][0];"
              "let t = 0; for (let i = 40; i < 90; ++i) t += Math.abs(c.y[i] - c.y[i - 1]);"
              "return t / 50 < 0.02; })()")
    page.key("s")
    page.key("l")
    page.wait("gradus.app.isLog && gradus.app.charts.get('loss').plot.scales.y.distr === 3")
    page.key("l")
    page.key("a")
    page.wait("gradus.app.axis === 'elapsed' && gradus.app.charts.get('loss').plot.scales.x.max"
              " < 800")
    page.key("a")
    page.key("a")

    # What the mouse is on.
    left, top, width, height = chart_box(page, "loss")
    for by in (0, 3, 6):
        page.mouse("mouseMoved", left + width / 2 + by, top + height / 2, 0)
    page.wait("!document.getElementById('tip').hidden && /step \\d+/.test("
              "document.getElementById('tip').textContent)")


def test_moving(page):
    """A chart that is moved shifts a picture of its curves, and draws them anew at the end."""
    page.run("(() => { const own = gradus.Chart.prototype.strokeCurves; gradus.strokes = 0;"
             "gradus.Chart.prototype.strokeCurves = function (place) {"
             "if (this.key === 'loss') ++gradus.strokes; return own.call(this, place); }; })()")
    page.wait("!gradus.app.charts.get('loss').isLoading")
    before = ink(page, "loss")
    left, top, width, height = chart_box(page, "loss")
    y = top + height / 2
    page.mouse("mousePressed", left + width * 0.5, y, 1, 8)
    from_, _ = view_of(page, "loss")
    for i in range(1, 40):
        page.mouse("mouseMoved", left + width * (0.5 - 0.005 * i), y, 1, 8)
    page.wait(f"gradus.app.charts.get('loss').plot.scales.x.min > {from_}")
    assert page.run("gradus.strokes") == 1, "the curves were drawn in every frame"
    assert ink(page, "loss") > before / 2, "the picture is empty"
    page.mouse("mouseReleased", left + width * 0.3, y, 0, 8)
    page.wait("gradus.strokes >= 2 && gradus.app.charts.get('loss').picture === null")


def test_comparison(page):
    page.run("(() => { const c = document.getElementById('colour'); c.value = 'learning_rate';"
             "c.onchange(); })()")
    legend = page.run("document.getElementById('legend').textContent")
    assert re.search(r"e-05|0\.0003", legend), legend
    same = page.run("(() => { const by = {}; gradus.app.runs.forEach(run => (by["
                    "gradus.app.settings.learning_rate[run.id]] ??= new Set()).add("
                    "gradus.app.colourOf(run.id))); return Object.values(by).every("
                    "colours => colours.size === 1) && new Set(Object.values(by).map("
                    "colours => [...colours][0])).size === Object.keys(by).length; })()")
    assert same, "runs of one value have one colour, those of another have another"
    page.key("3")
    page.wait("document.querySelectorAll('#scatter circle').length >= 8")
    page.wait("document.querySelectorAll('#parallel path').length >= 8")
    shot(page, "compare")

    page.key("2")
    page.wait("document.querySelectorAll('#table tbody tr').length === 9")
    heads = page.run("[...document.querySelectorAll('#table th')].map(e => e.textContent)")
    assert "learning_rate" in heads and "optim" in heads and "eval_loss" in heads, heads
    assert "task" not in heads and "output_dir" not in heads, heads
    page.run("[...document.querySelectorAll('#table th button')].find("
             "e => e.textContent === 'learning_rate').click()")
    rates = page.run("(() => { const i = [...document.querySelectorAll('#table th')].findIndex("
                     "e => e.textContent.startsWith('learning_rate')); return [..."
                     "document.querySelectorAll('#table tbody tr')].map(e => "
                     "Number(e.children[i].textContent)); })()")
    assert rates == sorted(rates), rates
    shot(page, "table")

    # The filter takes settings, too.
    page.run("(() => { const s = document.getElementById('search'); s.value = 'optim=lion_32bit';"
             "s.dispatchEvent(new Event('input')); })()")
    shown = page.run("document.querySelectorAll('#table tbody tr').length")
    assert 0 < shown < 9, shown
    page.run("(() => { const s = document.getElementById('search'); s.value = '';"
             "s.dispatchEvent(new Event('input')); })()")


def test_one_run(page):
    first = page.run("gradus.app.runs.find(run => run.name === 'run-0').id")
    page.run(f"gradus.app.openRun({first})")
    page.wait("!!document.querySelector('#run .fact')")
    page.wait("/gpt2/.test(document.querySelector('#run').textContent)")

    def part(name):
        page.run("[...document.querySelectorAll('#run .subtabs button')].find("
                 f"e => e.textContent === '{name}').click()")

    part("system")
    page.wait("gradus.app.runView.charts.some(c => c.key === 'system/gpu.0.busy_percent' && "
              "c.curves.size === 1)")
    shot(page, "system")
    part("samples")
    page.wait("document.querySelectorAll('#run .sample tbody tr').length > 0")
    names = page.run("[...document.querySelectorAll('#run select option')].map(e => e.value)")
    assert "generated_predictions.txt" in names, names
    assert "completions/completions_00050.jsonl" in names, names
    page.run("(() => { const s = document.querySelector('#run select');"
             "s.value = 'generated_predictions.txt'; s.dispatchEvent(new Event('change')); })()")
    page.wait("/rises <b>in/.test(document.querySelector('#run .sample').textContent)")
    assert page.run("document.querySelectorAll('#run .sample b').length") == 0, "text became HTML"
    page.run("(() => { const s = document.querySelector('#run select');"
             "s.value = 'completions/completions_00050.jsonl';"
             "s.dispatchEvent(new Event('change')); })()")
    page.wait("/reward/.test(document.querySelector('#run .sample thead').textContent)")
    page.wait("[...document.querySelectorAll('#run img')].length === 3")
    page.run("document.querySelector('#run img').scrollIntoView()")
    page.wait("document.querySelector('#run img').naturalWidth === 48")
    assert page.run("document.querySelectorAll('#run audio').length") == 1
    shot(page, "samples")
    part("checkpoints")
    page.wait("document.querySelectorAll('#run tbody tr').length === 1")
    page.run("document.querySelector('#run tbody button').click()")
    page.wait("/weights|complete|manifest|trainer_state|model/.test("
              "document.querySelector('#run tbody tr').lastChild.textContent) && "
              "!/reading/.test(document.querySelector('#run tbody tr').lastChild.textContent)")
    part("log")
    page.wait("/the loader took 12 %/.test(document.querySelector('#run .lines').textContent)")


def test_search(page, folder, study):
    """The study of a search: the best so far, parallel coordinates, a row a trial; it follows."""
    page.wait("!document.querySelector('[data-tab=search-view]').hidden")
    page.run("document.activeElement.blur()")
    page.key("5")
    page.wait("document.querySelectorAll('#search-view tbody tr').length === 7")
    facts = page.run("document.querySelector('#search-view .facts').textContent")
    assert "best eval_loss0.35" in facts and "best trial4" in facts, facts
    # Complete, pruned and running trials have a value; five have a final one.
    assert page.run("document.querySelectorAll('#search-view circle').length") == 6
    assert page.run("document.querySelectorAll('#search-view .parallel path').length") == 5
    assert page.run("document.querySelectorAll('#search-view .parallel path.pruned').length") == 1
    assert page.run("document.querySelector('#search-view tr.best').firstChild.textContent") == "4"
    axes = page.run("[...document.querySelectorAll('#search-view .parallel text[font-weight]')]"
                    ".map(e => e.textContent)")
    assert axes == ["learning_rate", "optim", "eval_loss"], axes
    # The axis of a parameter on a logarithmic scale is one: the middle of 1e-5 and 0.1 is 1e-3.
    assert page.run("[...document.querySelectorAll('#search-view .parallel text')].some("
                    "e => e.textContent === '0.001')")
    line = "document.querySelector('#search-view .best-so-far').getAttribute('d')"
    drops = page.run(f"({line}.match(/V/g) ?? []).length")
    assert drops == 2, "three trials were the best in their turn"
    shot(page, "search")
    study_file.add_trial(study, 7, "COMPLETE", 0.3, 0.02, 2)
    page.wait("document.querySelectorAll('#search-view tbody tr').length === 8")
    assert page.run(f"{line}.match(/V/g).length") == 3
    page.run("[...document.querySelectorAll('#search-view th button')].find("
             "e => e.textContent.startsWith('eval_loss')).click()")
    order = page.run("[...document.querySelectorAll('#search-view tbody tr')].map("
                     "e => e.firstChild.textContent)")
    assert order[0] == "7" and order[-1] == "5", order
    page.run("document.querySelector('#search-view tr.best').click()")
    page.wait("!document.getElementById('run').hidden && gradus.app.runs[gradus.app.runView.id]"
              ".name === 'run-7'")
    assert sorted(path.name for path in folder.glob("study*")) == ["study.db"]


def test_keyboard(page):
    page.key("1")
    page.wait("!document.getElementById('curves').hidden")
    page.run("document.activeElement.blur()")
    page.key("j")
    page.key("j")
    at = page.wait("gradus.app.atRun !== undefined && [gradus.app.atRun]")[0]
    count = page.run("gradus.app.selected.size")
    page.key("x")
    page.wait(f"gradus.app.selected.size === {count - 1}")
    page.key("x")
    page.key("Enter")
    page.wait(f"!document.getElementById('run').hidden && gradus.app.runView.id === {at}")
    page.key("1")
    page.key("/")
    page.wait("document.activeElement.id === 'search'")
    page.key("Escape")
    page.key("?")
    page.wait("document.getElementById('keys').open")
    page.key("Escape")
    page.run("document.getElementById('keys').close()")
    # Tab reaches a chart; arrows move it and + zooms.
    page.run("gradus.app.charts.get('loss').plotElement.focus()")
    whole = view_of(page, "loss")
    page.key("+")
    page.wait("gradus.app.charts.get('loss').view !== null")
    zoomed = view_of(page, "loss")
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    page.key("ArrowRight")
    page.wait(f"gradus.app.charts.get('loss').plot.scales.x.min > {zoomed[0]}")
    page.key("0")
    page.wait("gradus.app.charts.get('loss').view === null")


def small_page(folder):
    live = None
    for number in range(8):
        runs.write_run(folder / f"run-{number}", number)
    live = folder / "live"
    live.mkdir(parents=True)
    noise = random.Random(99)
    with open(live / "run_log.jsonl", "w") as out:
        began = time.time() - 60
        out.write(runs.begin_line(0, 1000, {"learning_rate": 2e-4, "optim": "adamw_torch",
                                            "task": "causal-lm", "seed": 99}, began, alive=True))
        for step in range(5, 405, 5):
            out.write(runs.entry(step, 0.004, noise, began + step / 7.5))
            if step % 20 == 0:
                out.write(runs.progress(step, began + step / 7.5, noise))
    runs.write_samples(folder / "run-0")
    (folder / "run-0" / "checkpoint-500").mkdir()
    (folder / "run-0" / "checkpoint-500" / "trainer_state.json").write_text("{}")
    study = study_file.write_study(folder / "study.db")
    server, address = start_server(folder)
    try:
        with chromium.Chromium() as browser:
            page = browser.open(address, 1280, 800)
            test_curves(page, live / "run_log.jsonl")
            test_comparison(page)
            test_one_run(page)
            test_search(page, folder, study)
            test_keyboard(page)
            assert not page.problems(), page.problems()
            outside = [each for each in page.addresses() if not each.startswith(address) and
                       not each.startswith(("data:", "about:", "blob:"))]
            assert not outside, outside

            dark = browser.open(address, 1280, 800, dark=True)
            dark.wait(DRAWN)
            assert dark.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
            shot(dark, "curves-dark")

            phone = browser.open(address, 390, 844, phone=True)
            phone.wait(DRAWN)
            assert phone.run("document.documentElement.scrollWidth") <= 390, "wider than the phone"
            shot(phone, "phone")
            phone.click("#menu")
            phone.wait("document.getElementById('side').classList.contains('open')")
            for each in (dark, phone):
                assert not each.problems(), each.problems()
            test_report(browser, folder)
    finally:
        server.terminate()
        server.wait(timeout=30)


def odd_page(folder):
    """Names that JavaScript's objects have already, addresses that make no sense, a server that is
    started anew while the page is open."""
    for number, name in enumerate(("b", "d")):
        runs.write_run(folder / name, number, steps=100)
    with open(folder / "d" / "run_log.jsonl", "a") as out:
        entry = {"step": 100, "__proto__": 5.0, "constructor": 6.0, "loss": float("nan")}
        out.write(json.dumps(entry) + "\n")
    server, address = start_server(folder)
    port = address.rstrip("/").rsplit(":", 1)[1]
    try:
        with chromium.Chromium() as browser:
            page = browser.open(address, 1280, 800)
            page.wait("gradus.app.runs.length === 2")
            page.run("gradus.app.show('table')")
            page.wait("document.querySelectorAll('#table tbody tr').length === 2")
            heads = page.run("[...document.querySelectorAll('#table th')].map(e => e.textContent)")
            assert "__proto__" in heads and "constructor" in heads, heads
            page.run("gradus.app.openRun(gradus.app.runs.find(run => run.name === 'd').id)")
            page.wait("location.hash.includes('run=d')")
            assert not page.problems(), page.problems()

            server.terminate()
            server.wait(timeout=30)
            runs.write_run(folder / "a", 3, steps=100)  # the others get new numbers
            server, _ = start_server(folder, port)
            page.wait("gradus.app.runs.length === 3 && gradus.app.runs[0].name === 'a'")
            page.wait("document.querySelector('#run h2')?.textContent === 'd'")

            for words in ("view=nonsense", "view=__proto__", "view=run&run=nobody&part=nonsense",
                          "runs=nobody&smoothing=x&axis=no&log=7&colour=no"):
                page.call("Page.navigate", url="about:blank")
                page.call("Page.navigate", url=f"{address}#{words}")
                page.wait("gradus.app.runs.length === 3 && !!document.querySelector("
                          "'#curves:not([hidden]), #run:not([hidden])')")
            problems = [each for each in page.problems() if "ERR_CONNECTION" not in each]
            assert not problems, problems
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_report(browser, folder):
    file = folder / "report.html"
    done = subprocess.run([GRADUS, "report", str(folder), "--html", str(file), "--png",
                           str(folder / "report.png")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    page = browser.open(file.as_uri(), 1280, 800)
    page.wait(DRAWN)
    assert ink(page, "loss") > 500
    page.key("2")
    page.wait("document.querySelectorAll('#table tbody tr').length === 9")
    first = page.run("gradus.app.runs.find(run => run.name === 'run-0').id")
    page.run(f"gradus.app.runView.part = 'samples'; gradus.app.openRun({first})")
    page.wait("document.querySelectorAll('#run .sample tbody tr').length > 0")
    page.wait("document.querySelector('#run img').naturalWidth === 48")
    page.run("gradus.app.show('search-view')")
    page.wait("document.querySelectorAll('#search-view .parallel path').length === 6")
    page.run("gradus.app.show('curves')")
    page.key("a")
    page.wait("gradus.app.axis === 'elapsed' && gradus.app.charts.get('loss').plot.scales.x.max"
              " < 800")
    assert not page.problems(), page.problems()
    others = [each for each in page.addresses() if each != file.as_uri() and
              not each.startswith(("data:", "about:"))]
    assert not others, others
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    if OPTIONS.shots:
        shutil.copy(folder / "report.png", OPTIONS.shots / "report.png")


FRAMES = """new Promise(done => {
  const times = []; let last = 0;
  const tick = now => {
    if (last) times.push(now - last);
    last = now;
    if (gradus.stopFrames) done(times); else requestAnimationFrame(tick);
  };
  gradus.stopFrames = false;
  requestAnimationFrame(tick);
})"""


SPENT = """(() => {
  const own = gradus.Chart.prototype.setView;
  gradus.spent = [];
  gradus.Chart.prototype.setView = function (view) {
    const began = performance.now();
    own.call(this, view);
    if (this.held) gradus.spent.push(performance.now() - began);
  };
})()"""


def moving_frames(page, key):
    """The times between frames while a chart is moved with the mouse."""
    left, top, width, height = chart_box(page, key)
    page.run("gradus.spent = []")
    page.run(f"gradus.frames = {FRAMES}; undefined")
    y = top + height / 2
    page.mouse("mouseMoved", left + width * 0.8, y, 0, 8)
    page.mouse("mousePressed", left + width * 0.8, y, 1, 8)
    for i in range(240):
        page.mouse("mouseMoved", left + width * (0.8 - 0.6 * abs((i / 80) % 2 - 1)), y, 1, 8)
    page.run("gradus.stopFrames = true")
    page.mouse("mouseReleased", left + width * 0.8, y, 0, 8)
    return page.run("gradus.frames")


def large_page(folder):
    """A thousand runs of ten thousand points each."""
    for number in range(1000):
        runs.write_run(folder / f"sweep-{number:04}", number, steps=3300, every=1)
    began = time.monotonic()
    server, address = start_server(folder)
    try:
        with chromium.Chromium() as browser:
            page = browser.open(address, 1440, 900)
            page.wait(DRAWN)
            print(f"server started to first picture: {time.monotonic() - began:.2f} s "
                  f"(in the page {page.run('gradus.firstPicture') / 1000:.2f} s)")
            page.wait("!/still reading/.test(document.getElementById('summary').textContent) && "
                      "gradus.app.runs.length === 1000", 120)
            print(f"all read after {time.monotonic() - began:.2f} s:",
                  page.run("document.getElementById('summary').textContent"))
            again = browser.open(address, 1440, 900)
            again.wait(DRAWN)
            again.run(SPENT)
            print(f"first picture of a page opened later: "
                  f"{again.run('gradus.firstPicture') / 1000:.2f} s")
            for name, choose in (("20 runs", "newest"), ("1000 runs", "all")):
                again.run(f"document.getElementById('{choose}').click()")
                wanted = 20 if choose == "newest" else 1000
                again.wait(f"gradus.app.charts.get('loss').curves.size === {wanted}", 60)
                again.wait("!gradus.app.charts.get('loss').isLoading")
                again.run("gradus.app.setView([800, 1800])")
                again.wait("!gradus.app.charts.get('loss').isLoading && "
                           "gradus.app.charts.get('loss').loaded[0] > -1e9", 60)
                times = sorted(moving_frames(again, "loss"))
                shown = 1000 / (sum(times) / len(times))
                print(f"moving {name}: {len(times)} frames, {shown:.1f} a second, median "
                      f"{times[len(times) // 2]:.1f} ms, 95 % below "
                      f"{times[int(len(times) * 0.95)]:.1f} ms")
                spent = sorted(again.run("gradus.spent"))
                print(f"  of a frame's 16.7 ms the page's own code takes: median "
                      f"{spent[len(spent) // 2]:.2f} ms, 95 % below "
                      f"{spent[int(len(spent) * 0.95)]:.2f} ms, at most {spent[-1]:.1f} ms")
                shot(again, f"large-{wanted}")
                again.run("gradus.app.setView(null)")
            assert not again.problems(), again.problems()
    finally:
        server.terminate()
        server.wait(timeout=30)


def main():
    if not chromium.PROGRAM:
        skip("Chromium is missing: the page is not tested; tools/setup --browser installs it")
    folder = Path(tempfile.mkdtemp(prefix="gradus-page-"))
    try:
        if OPTIONS.large:
            large_page(folder)
        else:
            small_page(folder / "small")
            odd_page(folder / "odd")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
