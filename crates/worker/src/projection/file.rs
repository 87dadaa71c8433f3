//! `[projection]` of `waypost.toml`: where the documents of runs are kept.

use std::path::Path;

use waypost_schema::{Kind, Problems, Shape, needed, optional};

use super::objects::{self, Settings};
use crate::playbook::format::TEXT;
use crate::playbook::text_of;
use crate::schedules::format::FILE;

pub(crate) static PROJECTION: Shape = Shape::of_file(
    "a projection",
    &[
        needed(
            "object_store",
            TEXT,
            "`file:///path/to/folder` or `s3://bucket/prefix`. `--object-store` and WAYPOST_OBJECT_STORE go before it.",
        ),
        optional(
            "endpoint",
            TEXT,
            "Where an S3-compatible store is: `http://127.0.0.1:9000`. Default: AWS_ENDPOINT_URL, or Amazon's.",
        ),
        optional("region", TEXT, "Of the bucket. Default: AWS_REGION, or us-east-1."),
        optional(
            "path_style",
            Kind::Boolean,
            "Whether the bucket stands in the path of addresses and not in their host. Default: true, unless AWS_VIRTUAL_HOSTED_STYLE_REQUEST says otherwise.",
        ),
    ],
);

/// What a file says, if it says anything of it.
pub fn load(path: &Path) -> Result<Option<Settings>, Problems> {
    let (root, mut report) = FILE.read(&text_of(path)?, path)?;
    let settings = root.get("projection").map(|node| {
        let settings = Settings {
            url: node.text_of("object_store").unwrap_or_default().to_owned(),
            endpoint: node.of("endpoint"),
            region: node.of("region"),
            path_style: node.of("path_style"),
        };
        if let Some((url, wrong)) = node.get("object_store").zip(objects::check(&settings.url).err()) {
            report.of_node(url, "bad-place", &wrong, "write file:///path/to/folder or s3://bucket/prefix");
        }
        settings
    });
    report.done(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Settings>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("waypost.toml");
        std::fs::write(&path, text).expect("written");
        load(&path).map_err(|problems| problems.to_string())
    }

    // proves A2
    #[test]
    fn a_place_is_what_the_file_says() {
        assert_eq!(read(""), Ok(None));
        let file = "[projection]\nobject_store = \"s3://b/p\"\nendpoint = \"http://127.0.0.1:9000\"\npath_style = true";
        let expected = Settings {
            url: "s3://b/p".to_owned(),
            endpoint: Some("http://127.0.0.1:9000".to_owned()),
            region: None,
            path_style: Some(true),
        };
        assert_eq!(read(file), Ok(Some(expected)));
    }

    #[test]
    fn what_is_no_place_is_told_by_its_line() {
        for file in [
            "[projection]\nobject_store = \"gopher://x\"",
            "[projection]\nendpoint = \"x\"",
            "[projection]\nplace = 1",
        ] {
            let told = read(file).expect_err(file);
            assert!(told.contains("waypost.toml:") && told.contains("object_store"), "{told}");
        }
    }
}
