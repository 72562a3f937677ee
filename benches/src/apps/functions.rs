// SPDX-License-Identifier: Apache-2.0
//! Eight functions in the manner of ServerlessBench and FunctionBench.
//!
//! Each is a `prepare`, done when the function is loaded, and a `work`, done
//! by every call. The sizes are such that a call takes some 5 to 50 ms.

/// One function.
pub(crate) struct App {
    /// Its part of the figures' names.
    pub(crate) name: &'static str,
    /// Python: imports, data, and `work()`.
    pub(crate) source: &'static str,
}

/// What the template imports, and what the peer imports by itself.
pub(crate) const IMPORTS: [&str; 7] =
    ["numpy", "PIL.Image", "jinja2", "sklearn.linear_model", "gzip", "json", "io"];

/// What every call does around `work`, here and there: it says what it took
/// inside, and a check of its result.
pub(crate) const APPLY: &str = "
import resource as _resource
import time as _time
def apply():
    faults = _resource.getrusage(_resource.RUSAGE_SELF).ru_minflt
    wall, cpu = _time.perf_counter_ns(), _time.process_time_ns()
    check = work()
    cpu = _time.process_time_ns() - cpu
    wall = _time.perf_counter_ns() - wall
    faults = _resource.getrusage(_resource.RUSAGE_SELF).ru_minflt - faults
    return b'%d %d %d %d' % (wall, cpu, faults, check)
";

pub(crate) const APPS: [App; 8] = [
    App {
        name: "matmul",
        source: "
import numpy
rng = numpy.random.default_rng(1)
a, b = rng.random((512, 512)), rng.random((512, 512))
def work():
    return int((a @ b).sum())
",
    },
    App {
        name: "linear_algebra",
        source: "
import numpy
rng = numpy.random.default_rng(2)
a, b = rng.random((500, 500)) + 500 * numpy.eye(500), rng.random(500)
def work():
    total = 0
    for power in range(4):
        x = numpy.linalg.solve(a, b ** power)
        total += int(numpy.abs(a @ x - b ** power).max() * 1000) + int(numpy.linalg.norm(x) * 1000)
    return total
",
    },
    App {
        name: "image",
        source: "
import io, numpy
from PIL import Image
rng = numpy.random.default_rng(3)
small = Image.fromarray(rng.integers(0, 256, (120, 160, 3), dtype=numpy.uint8))
file = io.BytesIO()
small.resize((1280, 960), Image.BICUBIC).save(file, 'JPEG', quality=85)
photo = file.getvalue()
def work():
    image = Image.open(io.BytesIO(photo))
    image.load()
    total = 0
    for width in (640, 320, 128):
        out = io.BytesIO()
        image.resize((width, width * 3 // 4), Image.LANCZOS).save(out, 'JPEG', quality=80)
        total += len(out.getvalue())
    return total
",
    },
    App {
        name: "gzip",
        source: "
import gzip, random
words = [w.encode() for w in 'node store handle tree blob thunk encode limits python lorem ipsum dolor'.split()]
rng = random.Random(4)
text = b' '.join(rng.choice(words) + b'%d' % rng.randrange(1000) for _ in range(30000))
def work():
    packed = gzip.compress(text, 6, mtime=0)
    return len(packed) + len(gzip.decompress(packed))
",
    },
    App {
        name: "json",
        source: "
import json, random
rng = random.Random(5)
records = [
    {'id': i, 'name': 'user %d' % i, 'score': rng.random(), 'tags': ['a', 'b', 'c'][: i % 4],
     'address': {'street': 'Road %d' % (i % 97), 'zip': str(10000 + i), 'ok': i % 3 == 0}}
    for i in range(3000)
]
def work():
    text = json.dumps(records)
    return len(text) + len(json.loads(text))
",
    },
    App {
        name: "template",
        source: "
import jinja2
template = jinja2.Template(
    '<table>{% for row in rows %}<tr class=\"{{ loop.cycle(\"odd\", \"even\") }}\">'
    '{% for cell in row %}<td>{{ cell|e }}</td>{% endfor %}</tr>{% endfor %}</table>')
rows = [['%d & %d' % (i, j) for j in range(10)] for i in range(800)]
def work():
    return len(template.render(rows=rows))
",
    },
    App {
        name: "video",
        source: "
import numpy
rng = numpy.random.default_rng(6)
frames = rng.integers(0, 256, (8, 360, 480, 3), dtype=numpy.uint8)
weights = numpy.array([0.299, 0.587, 0.114], dtype=numpy.float32)
def work():
    total, before = 0, None
    for frame in frames:
        grey = frame.astype(numpy.float32) @ weights
        blurred = (grey[:-2] + grey[1:-1] + grey[2:]) / 3
        if before is not None:
            total += int((numpy.abs(blurred - before) > 40).sum())
        before = blurred
    return total
",
    },
    App {
        name: "inference",
        source: "
import numpy
from sklearn.linear_model import LogisticRegression
rng = numpy.random.default_rng(7)
seen = rng.random((400, 60))
model = LogisticRegression(max_iter=1000).fit(seen, (seen[:, 0] * 4).astype(int))
asked = rng.random((20000, 60))
def work():
    return int(model.predict_proba(asked).max(axis=1).sum()) + int(model.predict(asked[:5000]).sum())
",
    },
];
