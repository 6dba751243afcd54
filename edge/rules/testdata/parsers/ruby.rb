# Says how Rack reads requests; node.js has the form of the lines. Of Rails, whose tokens are parameters, what its source does.
require 'json'
require 'rack'

def texts(*values)
  values.flatten.select { |v| v.is_a?(String) }.flat_map { |v| v = v.dup.force_encoding('UTF-8').scrub; [v, v.strip] }
end

# ActionController::HttpAuthentication::Token
def token(auth)
  return [] unless auth[/^(Token|Bearer)\s+/]
  raw = auth.sub(/^(Token|Bearer)\s+/, '').split(/(?:,|;|\t)/)
  return [] if raw.empty?
  raw[0] = "token=#{raw.first}" unless raw.first.start_with?('token=')
  params = raw.map { |p| p.split(/=(.+)?/) }.select { |p| p[1] }
  params.each { |p| p[1] = p[1].gsub(/^"|"$/, '') }
  texts(Hash[params.map { |p| [p[0].strip, p[1]] }]['token'])
end

puts JSON.generate(versions: ["Ruby #{RUBY_VERSION}", "Rack #{Rack.release}"])
$stdout.flush
$stdin.each_line do |line|
  head = JSON.parse(line)['raw'].encode('ISO-8859-1').force_encoding('BINARY').split("\r\n".b)
  query = (head[0].split(' ')[1].split('?', 2)[1] || '')
  headers = {}
  head[1..].each do |h|
    name, value = h.split(':', 2)
    next unless value
    name, value = name.upcase.tr('-', '_'), value.gsub(/\A[ \t]+|[ \t]+\z/n, '')
    headers[name] = headers.key?(name) ? headers[name] + (name == 'COOKIE' ? '; ' : ',') + value : value
  end
  begin
    params = Rack::Utils.parse_nested_query(query)
  rescue StandardError
    params = {}
  end
  cookies = Rack::Utils.parse_cookies_header(headers['COOKIE'] || '') rescue {}
  auth = headers['AUTHORIZATION']
  rails = auth ? (token(auth) rescue []) : []
  words = auth ? auth.split(' ', 2) : [] # Rack::Auth::AbstractRequest
  rails += ['user ' + words[1].unpack1('m').to_s.force_encoding('UTF-8').scrub] if words.length == 2 && words[0].downcase == 'basic'
  rails += texts(*words[1])
  puts JSON.generate('Rack' => { 'key' => texts(params['key']), 'q' => texts(params['q']), 'session' => texts(cookies['session']), 'authorization' => rails, 'path' => [],
                                 'x-api-key' => texts(headers['X_API_KEY']) })
  $stdout.flush
end
