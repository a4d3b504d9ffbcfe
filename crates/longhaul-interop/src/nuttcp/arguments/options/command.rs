//! The command that the options make.

use std::time::Duration;

use super::State;
use crate::nuttcp::arguments::values::RateValue;
use crate::nuttcp::arguments::{
    ArgumentError, CONTROL_PORT, ClientArguments, Command, DATAGRAM_BYTES, DATAGRAM_RATE_KBPS,
    DEFAULT_SECONDS, Output, ServerArguments,
};

impl State {
    /// Returns the command for the options and the words after them.
    pub(in crate::nuttcp::arguments) fn finish(
        mut self,
        rest: &[String],
    ) -> Result<Command, ArgumentError> {
        if let Some(command) = self.end.take() {
            return Ok(command);
        }
        let port = self.control_port.unwrap_or(CONTROL_PORT);
        let (family, ignored) = (self.family, std::mem::take(&mut self.ignored));
        match rest {
            [] if self.server || !self.parameters.client_sends => {
                // A receiver without a host is a server for one client.
                let once = self.once || !self.server;
                Ok(Command::Server(ServerArguments { port, once, family, ignored }))
            }
            [host] if !self.server => self.client(host, port, ignored),
            [_, _] => Err(ArgumentError::Unavailable("a third-party host".to_owned())),
            _ => Ok(Command::Usage),
        }
    }

    fn client(
        mut self,
        host: &str,
        control_port: u16,
        ignored: Vec<String>,
    ) -> Result<Command, ArgumentError> {
        if host.contains(['/', '+', '=']) {
            return Err(ArgumentError::Unavailable(format!("the address form {host}")));
        }
        let udp = self.parameters.udp;
        let default = if udp { DATAGRAM_BYTES } else { 65536 };
        self.parameters.buffer_bytes = self.length.unwrap_or(default);
        self.set_amount();
        self.set_rate();
        let parameters = &mut self.parameters;
        let irate = self.rate_mode.unwrap_or(parameters.jitter != 0);
        parameters.instant_rate = irate;
        if parameters.jitter != 0 && (parameters.rate_kbps.is_none() || !irate) {
            return Err(ArgumentError::Conflict("-j", "an unlimited or aggregate rate"));
        }
        if udp && parameters.flip {
            return Err(ArgumentError::Conflict("-F", "-u"));
        }
        if !parameters.time.is_zero() && parameters.interval >= parameters.time {
            parameters.interval = Duration::ZERO;
        }
        let server_window = self.server_window.unwrap_or(self.window);
        parameters.server_window_bytes = server_window as u32;
        let plain = Output { brief: true, blocks: false, cpu_seconds: false };
        let output = self.output.unwrap_or(plain);
        Ok(Command::Client(Box::new(ClientArguments {
            host: host.to_owned(),
            control_port,
            fit_datagram: udp && self.length.is_none(),
            window_bytes: self.window as u32,
            family: self.family,
            output: Output { cpu_seconds: self.cpu_seconds, ..output },
            ident: self.ident,
            ignored,
            parameters: self.parameters,
        })))
    }

    fn set_amount(&mut self) {
        let length = u64::from(self.parameters.buffer_bytes);
        let buffers =
            self.amount.map(|(n, in_bytes)| if in_bytes { (n / length).max(1) } else { n });
        let time = self.time.or(buffers.is_none().then_some(DEFAULT_SECONDS)).unwrap_or(0.0);
        self.parameters.buffers = buffers;
        self.parameters.in_bytes = self.amount.is_some_and(|(_, in_bytes)| in_bytes);
        self.parameters.time = Duration::from_secs_f64(time);
    }

    fn set_rate(&mut self) {
        let default = self.parameters.udp.then_some(RateValue::Kilobits(DATAGRAM_RATE_KBPS as f64));
        let bits = f64::from(self.parameters.buffer_bytes) * 8.0;
        let rate = self.rate.unwrap_or(default);
        self.parameters.in_packets = matches!(rate, Some(RateValue::Packets(_)));
        self.parameters.rate_kbps = rate.map(|rate| match rate {
            RateValue::Kilobits(rate) => (rate as u64).max(1),
            RateValue::Packets(rate) => ((rate * bits / 1000.0) as u64).max(1),
        });
    }
}
