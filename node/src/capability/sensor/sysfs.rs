//! Sensors that the kernel shows as files: thermal zones, hwmon chips, and any file with a number.

use super::Sensor;
use hearth_shared::command::sensor::Quantity;
use hearth_shared::error::{CommandError, ErrorCode};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// One that was found.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::capability) struct Found {
    pub(in crate::capability) id: String,
    pub(in crate::capability) name: String,
    pub(in crate::capability) quantity: Quantity,
    pub(in crate::capability) path: PathBuf,
    pub(in crate::capability) scale: f64,
}

/// A file that holds a number.
#[derive(Debug)]
pub(super) struct File {
    pub(in crate::capability) path: PathBuf,
    pub(in crate::capability) scale: f64,
}

impl Sensor for File {
    fn read(&self) -> Result<f64, CommandError> {
        let fault =
            |what: String| CommandError::new(ErrorCode::Hardware, format!("{}: {what}", self.path.display()));
        let text = read_line(&self.path).map_err(|e| fault(e.to_string()))?;
        let number: f64 = text.parse().map_err(|_| fault(format!("{text:?} is not a number")))?;
        // Rounded to what the file can tell: 21187 thousandths are 21.187, not 21.187000000000001.
        Ok((number * self.scale * 1e6).round() / 1e6)
    }
}

/// The first line of a small file, without the line end.
pub(in crate::capability) fn read_line(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(256).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().next().unwrap_or_default().trim_matches(['\0', ' ']).to_string())
}

/// The entries of a folder in the order of the numbers in their names; none if it cannot be read.
pub(in crate::capability) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort_by_key(|path| {
        let name = file_name(path);
        let number: String = name.chars().filter(char::is_ascii_digit).collect();
        (number.parse().unwrap_or(u64::MAX), name)
    });
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Everything under `root` (the real `/` but for tests), each physical sensor once.
pub(in crate::capability) fn discover(root: &Path) -> Vec<Found> {
    let mut found = thermal_zones(root);
    let zones: Vec<String> = found.iter().map(|f| f.id.clone()).collect();
    found.extend(hwmon(root, &zones));
    number_repeated_ids(&mut found);
    found
}

fn thermal_zones(root: &Path) -> Vec<Found> {
    let zones = entries(&root.join("sys/class/thermal"));
    let zones = zones.into_iter().filter(|p| file_name(p).starts_with("thermal_zone"));
    let mut processor = false;
    zones
        .filter(|zone| zone.join("temp").exists())
        .map(|zone| {
            let kind = read_line(&zone.join("type")).unwrap_or_else(|_| file_name(&zone));
            let id = plain(&kind);
            let is_cpu = ["cpu", "soc", "x86-pkg-temp"].iter().any(|known| id.starts_with(known));
            // People ask for the processor, not for `cpu-thermal`.
            let name = if is_cpu && !std::mem::replace(&mut processor, true) {
                "processor".to_string()
            } else {
                id.replace('-', " ")
            };
            Found { id, name, quantity: Quantity::Temperature, path: zone.join("temp"), scale: 0.001 }
        })
        .collect()
}

/// Prefix of the attribute, suffixes in order of preference, what it is, and the factor to our unit.
const ATTRIBUTES: &[(&str, &[&str], Quantity, f64)] = &[
    ("temp", &["_input"], Quantity::Temperature, 0.001),
    ("humidity", &["_input"], Quantity::Humidity, 0.001),
    ("in", &["_input"], Quantity::Voltage, 0.001),
    ("curr", &["_input"], Quantity::Current, 0.001),
    ("power", &["_input", "_average"], Quantity::Power, 0.000_001),
    ("fan", &["_input"], Quantity::FanSpeed, 1.0),
];

/// `hwmon3` is another chip after the next start, so ids are made of the chip's name, of its bus
/// address where several have that name, and of the channel's label.
fn hwmon(root: &Path, zones: &[String]) -> Vec<Found> {
    let mut chips = Vec::new();
    for folder in entries(&root.join("sys/class/hwmon")) {
        let device = folder.join("device");
        let target = std::fs::canonicalize(&device).unwrap_or_default();
        let name = plain(&read_line(&folder.join("name")).unwrap_or_default());
        // A thermal zone is shown as a chip too, under the zone's name.
        if name.is_empty() || zones.contains(&name) || file_name(&target).starts_with("thermal_zone") {
            continue;
        }
        chips.push((name, file_name(&target), folder));
    }
    let mut count = BTreeMap::new();
    chips.iter().for_each(|(name, ..)| *count.entry(name.clone()).or_insert(0) += 1);
    chips.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    let mut found = Vec::new();
    for (name, device, folder) in chips {
        let several = count.get(&name).is_some_and(|n| *n > 1) && !device.is_empty();
        let chip = if several { format!("{name}-{}", plain(&device)) } else { name };
        channels(&folder, &chip, &mut found);
    }
    found
}

fn channels(folder: &Path, chip: &str, found: &mut Vec<Found>) {
    let files = entries(folder);
    for (prefix, suffixes, quantity, scale) in ATTRIBUTES {
        let mut seen = Vec::new();
        for suffix in *suffixes {
            for path in &files {
                let name = file_name(path);
                let Some(number) = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix))
                else {
                    continue;
                };
                if number.parse::<u16>().is_err() || seen.contains(&number.to_string()) {
                    continue;
                }
                seen.push(number.to_string());
                let channel = format!("{prefix}{number}");
                let label = read_line(&folder.join(format!("{channel}_label"))).map(|l| plain(&l));
                let label = label.ok().filter(|l| !l.is_empty()).unwrap_or(channel);
                found.push(Found {
                    id: format!("{chip}-{label}"),
                    name: format!("{chip} {label}").replace('-', " "),
                    quantity: *quantity,
                    path: path.clone(),
                    scale: *scale,
                });
            }
        }
    }
}

fn number_repeated_ids(found: &mut [Found]) {
    let mut seen = BTreeMap::new();
    for sensor in found {
        sensor.id.truncate(60);
        let times = seen.entry(sensor.id.clone()).or_insert(0);
        *times += 1;
        if *times > 1 {
            sensor.id = format!("{}-{times}", sensor.id);
            sensor.name = format!("{} {times}", sensor.name);
        }
    }
}

/// `Package id 0` is `package-id-0`.
fn plain(text: &str) -> String {
    let mapped: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' }).collect();
    mapped.split_whitespace().collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn chip(root: &Path, number: u32, name: &str, device: &str, files: &[(&str, &str)]) {
        let folder = format!("sys/class/hwmon/hwmon{number}");
        write(root, &format!("{folder}/name"), name);
        files.iter().for_each(|(file, text)| write(root, &format!("{folder}/{file}"), text));
        if !device.is_empty() {
            let device = root.join("sys/devices").join(device);
            std::fs::create_dir_all(&device).unwrap();
            symlink(device, root.join(folder).join("device")).unwrap();
        }
    }

    fn ids(found: &[Found]) -> Vec<&str> {
        let mut ids: Vec<&str> = found.iter().map(|f| f.id.as_str()).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn each_physical_sensor_is_found_once_under_a_name_that_stays() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "sys/class/thermal/thermal_zone0/type", "cpu-thermal\n");
        write(root, "sys/class/thermal/thermal_zone0/temp", "48312\n");
        write(root, "sys/class/thermal/cooling_device0/type", "fan\n");
        // The same zone again, as the kernel shows it.
        chip(root, 0, "cpu_thermal\n", "virtual/thermal/thermal_zone0", &[("temp1_input", "48312\n")]);
        chip(
            root,
            1,
            "sht3x\n",
            "i2c/1-0044",
            &[("temp1_input", "21187\n"), ("humidity1_input", "45600\n"), ("temp1_max", "1\n")],
        );
        chip(
            root,
            2,
            "coretemp\n",
            "platform/coretemp.0",
            &[("temp1_input", "40000\n"), ("temp1_label", "Package id 0\n")],
        );
        chip(
            root,
            3,
            "ina219\n",
            "i2c/1-0040",
            &[("in1_input", "5012\n"), ("curr1_input", "350\n"), ("power1_input", "1754000\n")],
        );
        chip(root, 4, "pwmfan\n", "platform/fan", &[("fan1_input", "1780\n")]);
        let found = discover(root);
        assert_eq!(
            ids(&found),
            [
                "coretemp-package-id-0",
                "cpu-thermal",
                "ina219-curr1",
                "ina219-in1",
                "ina219-power1",
                "pwmfan-fan1",
                "sht3x-humidity1",
                "sht3x-temp1",
            ]
        );
        let value = |id: &str| {
            let sensor = found.iter().find(|f| f.id == id).unwrap();
            File { path: sensor.path.clone(), scale: sensor.scale }.read().unwrap()
        };
        assert_eq!(
            (value("cpu-thermal"), value("sht3x-temp1"), value("sht3x-humidity1")),
            (48.312, 21.187, 45.6)
        );
        assert_eq!(
            (value("ina219-in1"), value("ina219-curr1"), value("ina219-power1")),
            (5.012, 0.35, 1.754)
        );
        assert_eq!(value("pwmfan-fan1"), 1_780.0);
        assert_eq!(found.iter().find(|f| f.id == "cpu-thermal").unwrap().name, "processor");
    }

    #[test]
    fn chips_of_one_kind_are_told_apart_by_their_address_not_by_their_number() {
        let found = |first: &str, second: &str| {
            let root = tempfile::tempdir().unwrap();
            chip(root.path(), 0, "nvme", &format!("pci/{first}"), &[("temp1_input", "1000")]);
            chip(root.path(), 1, "nvme", &format!("pci/{second}"), &[("temp1_input", "2000")]);
            let found = discover(root.path());
            let value = |f: &Found| File { path: f.path.clone(), scale: f.scale }.read().unwrap();
            found.iter().map(|f| (f.id.clone(), value(f))).collect::<Vec<_>>()
        };
        assert_eq!(
            found("nvme0", "nvme1"),
            [("nvme-nvme0-temp1".into(), 1.0), ("nvme-nvme1-temp1".into(), 2.0)]
        );
        assert_eq!(
            found("nvme1", "nvme0"),
            [("nvme-nvme0-temp1".into(), 2.0), ("nvme-nvme1-temp1".into(), 1.0)]
        );
    }

    #[test]
    fn equal_names_are_numbered_and_rubbish_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        for zone in 0..2 {
            write(root.path(), &format!("sys/class/thermal/thermal_zone{zone}/type"), "acpitz\n");
            write(root.path(), &format!("sys/class/thermal/thermal_zone{zone}/temp"), "hot\n");
        }
        let found = discover(root.path());
        assert_eq!(ids(&found), ["acpitz", "acpitz-2"]);
        let error = File { path: found[0].path.clone(), scale: 1.0 }.read().unwrap_err();
        assert!(error.message.contains("hot") && error.message.contains("thermal_zone0"), "{error}");
        assert!(discover(Path::new("/nowhere")).is_empty());
    }
}
