// SPDX-License-Identifier: Apache-2.0
//! Images of Pillow as values of steps: what they consist of is not packed into bytes and unpacked again.

use serde_json::{Value, json};

use super::functions::is_root;
use super::requirements::reaches;
use super::{Node, home};

/// `packs`: how many pieces of memory an image is handed over in, beside its pickle.
const MAIN: &str = r#"
import __main__, io, pickle
import PIL
from PIL import Image
from sinew import function, isolated, workflow

def picture(mode):
    image = Image.linear_gradient("L").resize((640, 480)).convert(mode)
    image.info["mode"] = mode
    return image

@function
def drawn(mode):
    return picture(mode)

@function
def borrowed(size):
    return Image.frombuffer("L", (size, size), bytearray(range(256)) * (size * size // 256), "raw", "L", 0, 1)

@function
def seen(image):
    target, pieces = io.BytesIO(), []
    __main__.reducing(pickle.Pickler(target, 5, buffer_callback=pieces.append)).dump(image)
    return [image.tobytes() == picture(image.mode).tobytes(), image.info, len(pieces)]

@function
def same(image):
    return image

@function
def changed(image):
    image.load()[3, 4] = image.getpixel((600, 400))
    return image

@function
def refused(image):
    try:
        return int(image)
    except TypeError:
        return [image.size, image.getpixel((7, 9)), PIL.__version__]

@workflow
def handler(event):
    image = drawn(event["mode"])
    told = [seen(image), seen(changed(image)), seen(isolated(image)), seen(same(same(image))), image.result().size]
    return [*told, refused(same(borrowed(512)))]
"#;

/// Of the images, how many pieces of memory each is handed over in.
fn images_are_handed_over(version: &str, pieces: &[(&str, u64)]) {
    if !is_root() || !reaches("python3", &["-m", "pip", "index", "versions", "pillow"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = node.python("pictures", "memory = \"192MiB\"\nworkflow = true\n", MAIN);
    std::fs::write(folder.join("requirements.txt"), format!("pillow=={version}\n")).unwrap();
    node.install(&folder).unwrap();
    for (mode, pieces) in pieces {
        let seen = |is_same: bool| json!([is_same, {"mode": mode}, pieces]);
        let told = node.ok(&["invoke", "pictures", "-d", &json!({"mode": mode}).to_string()]);
        let borrowed = json!([[512, 512], 7, version]);
        let expected = json!([seen(true), seen(false), seen(true), seen(true), [640, 480], borrowed]);
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), expected, "{mode}");
    }
}

#[test]
fn images_are_handed_over_as_the_memory_that_they_have() {
    // Pillow has palettes for itself.
    images_are_handed_over("13.0.0", &[("RGB", 1), ("L", 1), ("F", 1), ("P", 0)]);
}

#[test]
fn so_are_those_of_an_earlier_pillow() {
    images_are_handed_over("12.3.0", &[("RGB", 1), ("L", 1)]);
    images_are_handed_over("10.2.0", &[("RGB", 1), ("L", 1)]);
}

#[test]
fn images_of_an_older_pillow_pickle_themselves() {
    images_are_handed_over("10.1.0", &[("RGB", 0), ("L", 0)]);
}
